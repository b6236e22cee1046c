"""Built-in super networks, and the text that names one: `resnet-fabric:width=3,channels=16`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from budgetnet.errors import UserError, user_code
from budgetnet.naming import keyword_arguments, load_object, parameters, split_name
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces.from_model import from_model
from budgetnet.spaces.neural_fabric import neural_fabric
from budgetnet.spaces.resnet_fabric import resnet_fabric

__all__ = ["SPACES", "build", "from_model", "neural_fabric", "resnet_fabric"]

Builder = Callable[..., SuperNetwork]

SPACES: dict[str, Builder] = {"resnet-fabric": resnet_fabric, "neural-fabric": neural_fabric}


def build(
    text: str, input_shape: Sequence[int] | None = None, classes: int | None = None, *, own: Collection[str] = ()
) -> SuperNetwork:
    """The super network that a text names: a built-in space or `package.module:builder`, then `:name=value,…`.

    `input_shape` and `classes` come from the data and are passed on where the builder takes them. A builder of the
    user's is loaded only if it is among the `own` names (`naming.own_names` of what the user wrote).
    """
    name, options = split_name(text, SPACES)
    builder = SPACES.get(name) or load_object(name, "a space", SPACES, own)
    arguments = keyword_arguments(builder, options, f"the space {name}", reserved=("input_shape", "classes"))
    accepted = parameters(builder, f"the space {name}")
    if input_shape is not None and "input_shape" in accepted:
        arguments["input_shape"] = tuple(input_shape)
    if classes is not None and "classes" in accepted:
        arguments["classes"] = classes
    if name in SPACES:
        return builder(**arguments)
    with user_code(f"the space {name}", "; correct the builder"):
        net: object = builder(**arguments)
    if not isinstance(net, SuperNetwork):
        raise UserError(f"{name} gave a {type(net).__name__}, not a SuperNetwork; return one from the builder")
    return net
