"""What a value is: attributes with their types, the schema that orders them, and the columns users give.

numerals.py      numbers as text and as decimals, exactly
instants.py      times of any unit as microseconds
columns.py       any column (array, Arrow, pandas, list) in one of four plain forms
strings.py       strings of Arrow columns to codes, by their bytes
vocabulary.py    the dictionary of a category
attributes.py    values to order-preserving int64 codes, exactly
expressions.py   expressions over attributes; derived.py has them as hidden attributes
patterns.py      patterns of texts and several values; places.py has points and regions, addresses.py networks
schema.py        ordered attributes, from code or from a file
"""
