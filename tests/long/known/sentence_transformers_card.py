"""sentence-transformers: a model and the data of its model card refer to each other."""

from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Dense, Pooling


def created() -> SentenceTransformer:
    return SentenceTransformer(modules=[Pooling(512), Dense(512, 512)], device="cpu")


def leak() -> None:
    created()


def remedied() -> None:
    created().model_card_data.model = None
