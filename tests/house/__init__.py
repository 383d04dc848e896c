"""Keeps the source in order: names, docstrings and the paths that documents refer to.

source            the modules of `src/holdfast` and the names they define
test_names        one definition of a public class name; the words of the vocabulary in names
test_docstrings   every module has a docstring; package docstrings list modules that exist
test_documents    paths and names in `docs/` and CONTRIBUTING.md exist
exceptions.txt    names that still have a word of `test_names.BANNED`, one a line; it only shrinks
"""
