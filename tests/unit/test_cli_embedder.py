"""The embedder of a command: an endpoint, or the model that ships with a server install."""

import pytest
from pg_memoir_cli.embedder import EmbedderUnavailable, load_embedder
from stubs import ChatCompletionsStub, fake_vector


def test_endpoint_embedder():
    with ChatCompletionsStub() as stub:
        loaded = load_embedder(endpoint=stub.url, model="m")
        vectors = loaded(["b a", "c"])
        assert len(vectors) == 2 and abs(sum(x * x for x in vectors[0]) - 1) < 1e-6
        expected = fake_vector("b a")
        assert max(range(384), key=vectors[0].__getitem__) == max(range(384), key=expected.__getitem__)
        with pytest.raises(EmbedderUnavailable, match="answered 400"):
            load_embedder(endpoint=stub.url + "/wrong")(["a"])
    with pytest.raises(EmbedderUnavailable, match="refused|127.0.0.1"):
        load_embedder(endpoint=stub.url)(["a"])
    with pytest.raises(EmbedderUnavailable, match="NO_SUCH_API_KEY is not set"):
        load_embedder(endpoint=stub.url, api_key_env="NO_SUCH_API_KEY")
    with pytest.raises(EmbedderUnavailable, match="unknown runtime"):
        load_embedder("magic")
    with pytest.raises(EmbedderUnavailable, match="needs an endpoint"):
        load_embedder("openai")


def test_local_embedder():
    """The model that ships with a server install, where this Python has it."""
    try:
        loaded = load_embedder()
    except EmbedderUnavailable as error:
        pytest.skip(str(error))
    cat, feline, tax = loaded(["a cat", "a small feline", "income tax return"])
    cosine = lambda a, b: sum(x * y for x, y in zip(a, b))  # noqa: E731
    assert len(cat) == 384 and cosine(cat, feline) > 0.5 > cosine(cat, tax)
