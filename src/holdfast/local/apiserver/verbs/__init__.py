"""What can be done to objects, apart from HTTP: each verb takes a `Call` and answers with objects.

    reading     get, list
    bodies      what a client sent, made into an object of the type it is for
    creating    create
    managing    who owns which field
    updating    update, and what any change of an object goes through
    patching    patch in its four kinds
    deleting    delete, deletecollection
    binding     pods/binding
    evicting    pods/eviction
    scaling     …/scale
    reviewing   who am I, what may I do

They raise `ApiError`, and nothing waits in between reading an object and writing it: no two requests
can come between each other.
"""
