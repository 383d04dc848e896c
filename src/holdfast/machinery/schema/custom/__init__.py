"""Custom objects, decoded, defaulted and validated by the schema of their definition.

pruning     unknown fields and nulls removed; defaults
validation  types, ranges, patterns, alternatives, lists that are sets or maps
cel         validation rules in CEL
regexp      Go's regular expressions, in linear time
"""
