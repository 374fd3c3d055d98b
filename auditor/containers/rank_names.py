"""The names of files that each rank of a training writes: DeepSpeed's, and verl's."""

import re

from auditor.names.parts import file_name

OF_MODEL = re.compile(r"(zero_pp_rank_\d+_)?mp_rank_\d\d_model_states\.pt")
OF_OPTIMIZER = re.compile(r"((?:\w+_)?)zero_pp_rank_(\d+)_mp_rank_(\d\d)_optim_states\.pt")
OF_VERL = re.compile(r"model_world_size_(\d{1,5})_rank_(\d{1,5})\.pt")


def main_file(names: list[str]) -> str | None:
    """Return the file of a folder that describes its model: of the lowest rank that is there.

    Without a model's file it is that of an optimizer. Return None if no rank wrote these files, or
    if several files have parts of each tensor (tensor parallelism, experts).
    """
    verl = [name for name in names if OF_VERL.fullmatch(file_name(name))]
    states = [name for name in names if OF_MODEL.fullmatch(file_name(name))]
    states = states or [name for name in names if OF_OPTIMIZER.fullmatch(file_name(name))]
    is_split = any("mp_rank_01_" in name or "_expert_" in name for name in names)
    ranked = sorted(verl or ([] if is_split else states), key=ranks_in)
    return ranked[0] if ranked else None


def ranks_in(name: str) -> tuple[int, ...]:
    """Return the numbers of the ranks in a file name."""
    return tuple(map(int, re.findall(r"rank_(\d+)", file_name(name))))
