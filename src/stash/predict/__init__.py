"""What a step would take on machines never touched: profile and target in, forecast out. Pure, without torch."""
