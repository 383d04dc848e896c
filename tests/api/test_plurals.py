from holdfast.api.plurals import number_of, plural


def test_counts_have_their_nouns() -> None:
    assert [number_of(count, "pod") for count in (0, 1, 2)] == ["0 pods", "1 pod", "2 pods"]
    assert number_of(1, "pod is", "pods are") == "1 pod is"
    assert number_of(3, "pod is", "pods are") == "3 pods are"
    assert (plural(1, "fits", "fit"), plural(2, "fits", "fit")) == ("fits", "fit")
