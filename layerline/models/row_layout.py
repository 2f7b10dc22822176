"""What a row of a frame between two stages consists of: the residual, and what it carries beside that.

Most models carry nothing. But layers may get an input of each token by itself, made of its id and its first residual,
and layers may read the keys and values of an earlier one. Whatever of this a stage needs and cannot make comes in the
row; ids come in the frame. Keys and values are kept by the stage in pages of its own, as if it had the layer that made
them.
"""

from __future__ import annotations

from dataclasses import dataclass

from layerline.models.spec import ModelSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class RowLayout:
    """The numbers of a row in order: the residual; if `has_first`, the row's first residual; then of each layer in
    `sources` the keys of all heads and their values, as pages take them."""

    hidden: int
    has_first: bool
    sources: tuple[int, ...]
    source_numbers: tuple[int, ...]  # of each source

    @property
    def numbers(self) -> int:
        """How many there are."""
        return self.hidden * (1 + self.has_first) + sum(self.source_numbers)

    @property
    def carries(self) -> bool:
        """Whether there is anything beside the residual."""
        return self.has_first or bool(self.sources)

    @property
    def needs_ids(self) -> bool:
        """Whether the frame has the token ids as well."""
        return self.has_first

    def start_of(self, source: int) -> int:
        """Where the keys of a source begin."""
        place = self.sources.index(source)
        return self.hidden * (1 + self.has_first) + sum(self.source_numbers[:place])


def row_into(spec: ModelSpec, first_layer: int) -> RowLayout:
    """A row into the stage that begins with `first_layer`, which is not the first of the model."""
    sources = read_outside(spec, range(first_layer, spec.layers))
    kept = [spec.layer(source).attention for source in sources]
    return RowLayout(
        hidden=spec.hidden,
        has_first=spec.token_input > 0,
        sources=sources,
        source_numbers=tuple(own.key_numbers + own.value_numbers for own in kept),
    )


def read_outside(spec: ModelSpec, layers: range) -> tuple[int, ...]:
    """The layers before `layers` whose keys and values some of these read, in order."""
    if not spec.shares_pages:
        return ()
    read = {spec.kinds[kind].source for kind in set(spec.layer_kinds[layers.start : layers.stop])}
    return tuple(sorted(source for source in read if source is not None and source < layers.start))


def widest_row(spec: ModelSpec) -> int:
    """The most numbers of a row between any two stages."""
    if not spec.token_input and not spec.shares_pages:
        return spec.hidden
    return max((row_into(spec, first).numbers for first in range(1, spec.layers)), default=spec.hidden)


@dataclass(frozen=True, kw_only=True, slots=True)
class StageRows:
    """What rows are before and after a stage of `layers`, and which pages its layers read.

    The stage has pages of its own layers and, behind them, of those in `outside`. `page_numbers` says for each of its
    layers whose, counted like that.
    """

    layers: range
    into: RowLayout | None  # None: ids
    out: RowLayout | None  # None: they go nowhere
    outside: tuple[int, ...]
    page_numbers: tuple[int, ...]
    has_inputs: bool  # its layers have inputs of their own of each token

    @classmethod
    def of(cls, spec: ModelSpec, layers: range) -> StageRows:
        """Those of a stage of a model."""
        outside = read_outside(spec, layers)
        sources = [spec.layer(layer).source for layer in layers]
        return cls(
            layers=layers,
            into=row_into(spec, layers.start) if layers.start else None,
            out=row_into(spec, layers.stop) if layers.stop < spec.layers else None,
            outside=outside,
            page_numbers=tuple(
                number
                if source is None
                else source - layers.start
                if source in layers
                else len(layers) + outside.index(source)
                for number, source in enumerate(sources)
            ),
            has_inputs=spec.token_input > 0,
        )

    @property
    def all_page_numbers(self) -> tuple[int, ...]:
        """The same of the layers outside too, whose pages are their own."""
        return (*self.page_numbers, *range(len(self.layers), len(self.layers) + len(self.outside)))

    @property
    def needs_more(self) -> bool:
        """Whether the stage takes more than the residual, or hands more on."""
        rows = (row for row in (self.into, self.out) if row is not None)
        return self.has_inputs or any(row.carries for row in rows)

    @property
    def made(self) -> tuple[int, ...]:
        """The sources that are layers of the stage."""
        return () if self.out is None else tuple(source for source in self.out.sources if source in self.layers)

    @property
    def passed_on(self) -> tuple[int, ...]:
        """The sources whose keys and values only pass through the row."""
        return () if self.out is None else tuple(source for source in self.out.sources if source not in self.layers)
