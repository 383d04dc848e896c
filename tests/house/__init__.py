"""Keeps the source in order: names, docstrings and documents.

source            the modules of `src/holdfast` and the names they define
test_names        one definition of a public class name; the words of the vocabulary in names
texts             the texts that users can read
test_texts        the words of the vocabulary in those texts
test_docstrings   every module has a docstring; package docstrings list modules that exist
test_documents    paths and names in `docs/` and CONTRIBUTING.md exist
markdown          the fenced blocks of documents, and the commands in them
test_documented_blocks    YAML, JSON and Python blocks are simulated, validated or parsed
test_documented_commands  commands run, or are parsed by the program that they name
exceptions.txt    names that still have a word of `test_names.BANNED`, one a line; it only shrinks
"""
