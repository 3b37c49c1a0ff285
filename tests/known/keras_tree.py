"""keras: helpers for nested structures."""
import os
os.environ["KERAS_BACKEND"] = "torch"
import torch
import keras


def leak() -> None:
    x = {"a": torch.zeros(262144), "b": [torch.zeros(10)]}
    keras.tree.flatten(x)
    keras.tree.flatten_with_path(x)
    keras.tree.map_structure(lambda t: t + 1, x)
    keras.tree.traverse(lambda t: None, x)
    keras.tree.map_structure_up_to(x, lambda t: t, x)
    keras.tree.lists_to_tuples(x)
    keras.tree.pack_sequence_as(x, keras.tree.flatten(x))
    keras.tree.assert_same_structure(x, x)
    keras.tree.assert_same_paths(x, x)
    keras.tree.map_shape_structure(lambda t: t, {"a": (1, 2)})
