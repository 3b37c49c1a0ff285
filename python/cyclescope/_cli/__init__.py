"""The commands of ``cyclescope``, each with a ``prepare_parser`` and a ``run``."""
