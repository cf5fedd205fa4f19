"""When to hold spot machines and when on-demand ones, played against recorded markets."""
