"""The text of --layers."""

from __future__ import annotations

import pytest

from layerline.errors import UsageError
from layerline.layers_option import format_layers, parse_layers
from layerline.plan_request import ManualStage


def stage(node: str, first_layer: int, last_layer: int) -> ManualStage:
    return ManualStage(node=node, first_layer=first_layer, last_layer=last_layer)


def test_stages_are_read_in_their_order() -> None:
    assert parse_layers("a=0-14, b=15-29") == (stage("a", 0, 14), stage("b", 15, 29))


def test_names_may_have_dashes_dots_spaces_and_equals_signs() -> None:
    assert parse_layers("my-pi.lan 2=x=3-4") == (stage("my-pi.lan 2=x", 3, 4),)


def test_a_single_layer_needs_no_dash() -> None:
    assert parse_layers("a=7") == (stage("a", 7, 7),)


def test_the_text_goes_both_ways() -> None:
    assert format_layers(parse_layers("a=0-14,b=15-29")) == "a=0-14,b=15-29"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' in --layers is not of the form"),
        ("a", "'a' in --layers is not of the form"),
        ("a=0-1,", "'' in --layers is not of the form"),
        ("=0-1", "'=0-1' in --layers is not of the form"),
        ("a=", "'a=' in --layers is not of the form"),
        ("a=0-1-2", "is not of the form"),
        ("a=x-2", "is not of the form"),
        ("a=-2", "is not of the form"),
        ("a=0-²", "is not of the form"),
        ("a=0-" + "9" * 5000, "is not of the form"),
        ("a=5-3", "'a=5-3' in --layers ends before it begins"),
        ("a=0-999999", "goes beyond"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_layers(text)
    assert message in refused.value.message
    assert "a=0-14,b=15-29" in refused.value.remedy
