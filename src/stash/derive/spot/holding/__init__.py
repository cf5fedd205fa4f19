"""When to hold spot machines and when on-demand ones: policies played against what could be had."""
