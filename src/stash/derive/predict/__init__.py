"""What a step would take on machines never touched: profile and target in, forecast out, pure and without torch.

``draws`` carries uncertainty, ``quantity`` and ``target`` the facts, ``forecast`` puts predicted stalls together.
"""
