"""What a value is: attributes with their types, the schema that orders them, and the columns users give.

numerals.py      numbers as text and as decimals, exactly
instants.py      times of any unit as microseconds
columns.py       any column (array, Arrow, pandas, list) in one of four plain forms
vocabulary.py    the dictionary of a category
attributes.py    values to order-preserving int64 codes, exactly
schema.py        ordered attributes, from code or from a file
"""
