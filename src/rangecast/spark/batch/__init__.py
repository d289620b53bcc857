"""Matching what is there: a DataFrame, files, a table in SQL."""
