"""The pages of docs/reference, made from the code: `python tools/write_reference.py`.

    markdown          tables and spans
    commands          the command line
    configuration     the configuration file
    definitions       fields of the CustomResourceDefinitions
    names_on_objects  labels and annotations
    metrics           metrics of `run`, `up` and the provisioner
    messages          failure reasons, Events and conditions

What the code does not have, such as the meaning of an argument, is a table in the module; a test checks
that it has an entry for everything in the code and for nothing else.
"""
