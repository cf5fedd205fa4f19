"""How fast other devices compute, by published pairs, a roofline or data sheets, and what several cost each other."""
