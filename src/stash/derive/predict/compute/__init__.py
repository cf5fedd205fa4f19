"""How fast another device computes: published pairs of devices, a roofline, data sheets, in this order."""
