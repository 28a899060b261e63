"""The weights of the seam: log odds of an echo, by feature (`evidence.features`).

Rounded by hand after a logistic fit on 1.6 million tokens of real files, before
`scripts/fit_seams.py` was written.
"""

from typing import Final

#: For a cut inside a line.
INSIDE: Final = {
    "const": -7.2,
    "length": 0.4,
    "run": -0.6,
    "run_any": 1.0,
    "pair_0": 3.0,
    "pair_1": 1.4,
    "pair_2": 0.3,
    "quad_0": 1.1,
    "quad_3": 1.6,
    "line_start": 5.9,
    "in_word": 0.5,
    "word_start": 1.6,
    "stutter": 1.5,
    "retyped": 5.0,
    "word_step": 0.9,
    "lines": 2.5,
    "space_last": 2.4,
    "goes_on": -1.4,
    "fit": 0.9,
    "sentence_start": 4.0,
    "whole": 3.0,
    "long_new": 7.0,
}

#: For a cut after a line, where the step to a line's start is nothing rare.
AFTER: Final = {
    "const": -2.4,
    "run": -0.9,
    "pair_1": 2.1,
    "quad_0": 3.0,
    "line_start": 4.4,
    "newline_first": 4.5,
    "whole": 3.0,
    "new": 0.085,
    "long_new": 0.5,
}
