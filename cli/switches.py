"""What does the help of a switch show? Its names alone: it takes no value."""

from collections.abc import Sequence
from typing import Any

from typer.core import TyperGroup, TyperOption


def bare(parameters: Sequence[Any]) -> list[Any]:
    """Return *parameters* with the switches among them shown without the type of a value."""
    for one in parameters:
        if isinstance(one, TyperOption) and one.is_flag:
            one.metavar = ""
    return list(parameters)


class CommandGroup(TyperGroup):
    """The commands, with switches of their own before them."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, `--help` among them."""
        return bare(super().get_params(ctx))
