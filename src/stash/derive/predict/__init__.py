"""What a step would take on machines never touched: profile and target in, forecast out, pure and without torch.

``uncertainty`` is what every number carries, ``target`` the cluster asked about, ``forecast`` what comes out. Each
kind of stall has a room for its models: ``compute``, ``exchange`` and ``loading``. ``whatif`` holds them to what was
measured and changes what is asked; ``answers`` says what a forecast means.
"""
