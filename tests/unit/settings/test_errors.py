"""A setting of a wrong type is named, with the variable that sets it."""

from __future__ import annotations

import pytest

from projections.errors import InvalidSettings
from streams.settings.settings import Settings


def test_a_setting_of_a_wrong_type_names_itself_and_its_variable() -> None:
    with pytest.raises(
        InvalidSettings,
        match=r"setting 'partitions' \(THREADFOLD_PARTITIONS\): expected int, got str",
    ):
        Settings.load(env={"THREADFOLD_PARTITIONS": "many"})
