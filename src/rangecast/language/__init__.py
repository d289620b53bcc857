"""The language of conditions: from texts to the closed code intervals that indexes store.

    text --tokens.py, parser.py--> tree.py --normal_form.py--> boxes

    parser.py     predicates on expressions, which normal_form.py turns into conditions on hidden attributes
    tokens.py       what to write instead of a text that is refused
    compiler.py     the ways in: one tree, the boxes of one text, a column of texts
    templates.py    texts that differ in their literals alone, compiled together
    lint.py         what is odd about a condition, and what was probably meant
    templates.py what a predicate allows in each of many texts
    evaluation.py   what each part of a condition comes to for one event, for people

`docs/language.md` says what a text means.
"""

from rangecast.language.compiler import Compiled, boxes_of, clauses_of, compile_conditions, parse
from rangecast.language.lint import Finding, lint

__all__ = ["Compiled", "Finding", "boxes_of", "clauses_of", "compile_conditions", "lint", "parse"]
