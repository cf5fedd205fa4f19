"""Golden texts across processors: numbers printed in full agree when nine significant digits do.

The last digits of a float depend on the kernel that a linear-algebra library chooses for the processor. Everything
else, integers and shortly printed numbers among it, has to be the same to the character.
"""

import math
import re

SIGNIFICANT_DIGITS = 9
FLOAT = re.compile(r"(?<![\w.])-?\d+(?:\.\d+(?:e[+-]?\d+)?|e[+-]?\d+)(?![\w.])", re.IGNORECASE)


def copy_close_numbers(text, golden):
    """``text``, with the golden text's spelling of each number that is the same to nine significant digits."""
    numbers, expected = FLOAT.findall(text), FLOAT.findall(golden)
    if len(numbers) != len(expected):
        return text
    spellings = iter(
        wanted if _is_close(number, wanted) else number
        for number, wanted in zip(numbers, expected, strict=True)
    )
    return FLOAT.sub(lambda _: next(spellings), text)


def _is_close(number, wanted):
    if max(_significant_digits(number), _significant_digits(wanted)) <= SIGNIFICANT_DIGITS:
        return False
    return math.isclose(float(number), float(wanted), rel_tol=10.0**-SIGNIFICANT_DIGITS)


def _significant_digits(number):
    mantissa = re.split("e", number, flags=re.IGNORECASE)[0]
    return len(mantissa.lstrip("-").replace(".", "").lstrip("0"))
