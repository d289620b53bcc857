"""The language of conditions: from texts to the closed code intervals that indexes store.

    text --tokens.py, parser.py--> tree.py --normal_form.py--> boxes

    tokens.py       the pieces of a text, and what to write instead of one that is refused
    parser.py       the grammar: an operand first, then the predicate that follows it
    expressions.py  predicates on expressions, as conditions on hidden attributes
    tree.py         what the parser makes of a text
    normal_form.py  a tree as boxes
    compiler.py     the ways in: one tree, the boxes of one text, a column of texts
    templates.py    texts that differ in their literals alone, compiled together
    long_lists.py   IN lists of hundreds of values, read from the bytes of a text
    lint.py         what is odd about a condition, and what was probably meant
    kernels.py      lists of numbers, read from bytes
    evaluation.py   what each part of a condition comes to for one event, for people

`docs/language.md` says what a text means.
"""

from rangecast.language.compiler import Compiled, boxes_of, clauses_of, compile_conditions, parse
from rangecast.language.lint import Finding, lint

__all__ = ["Compiled", "Finding", "boxes_of", "clauses_of", "compile_conditions", "lint", "parse"]
