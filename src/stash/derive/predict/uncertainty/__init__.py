"""How sure is a number: a quantity with its spread and its source, and the draws that models compute with."""
