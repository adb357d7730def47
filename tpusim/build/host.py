"""Builder methods for what enters and leaves a device: infeed, outfeed, send and receive.

The document's Send and Recv are one operation each; in HLO each is a pair, of which the second part waits for the
first, ordered by tokens. The forms with a token of the caller's own are XlaBuilder's too.

Source: XLA, Operation Semantics, and ``XlaBuilder``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tpusim.build.base import Op, as_shape
from tpusim.build.data import DataMethods
from tpusim.semantics.infer.types import TOKEN, U32
from tpusim.shapes.shape import Shape, TupleShape, with_default_layouts


class HostMethods(DataMethods):
    """Operations that hand values to and from the host and other devices."""

    def __init__(self, name: str) -> None:
        """Begin a computation of that name."""
        super().__init__(name)
        # Infeeds have a total order, and so have outfeeds, even where the caller states none.
        self._infeed_token: Op | None = None
        self._outfeed_token: Op | None = None

    def infeed(self, shape: Shape | str, config: str = "") -> Op:
        """Return the next value that the host feeds in, after all infeeds before in this computation."""
        both = self.infeed_with_token(self._infeed_token or self.after_all(), shape, config)
        self._infeed_token = self.get_tuple_element(both, 1)
        return self.get_tuple_element(both, 0)

    def infeed_with_token(self, token: Op, shape: Shape | str, config: str = "") -> Op:
        """Return a tuple: the next value that the host feeds in, and a token."""
        # The layout that the caller states is that of the transfer, so it is kept.
        wanted = TupleShape((as_shape(shape), TOKEN))
        return self.emit("infeed", [token], {"infeed_config": config or None}, wanted)

    def outfeed(self, operand: Op, shape_with_layout: Shape | str | None = None, outfeed_config: str = "") -> Op:
        """Hand a value to the host, after all outfeeds before in this computation; return an empty tuple."""
        token = self._outfeed_token or self.after_all()
        self._outfeed_token = self.outfeed_with_token(operand, token, shape_with_layout, outfeed_config)
        return self.tuple([])

    def outfeed_with_token(
        self, operand: Op, token: Op, shape_with_layout: Shape | str | None = None, outfeed_config: str = ""
    ) -> Op:
        """Hand a value to the host under a layout; return a token."""
        shape = operand.shape if shape_with_layout is None else as_shape(shape_with_layout)
        attributes = {"outfeed_shape": with_default_layouts(shape), "outfeed_config": outfeed_config or None}
        return self.emit("outfeed", [operand, token], attributes, TOKEN)

    def send(self, operand: Op, channel_handle: int) -> Op:
        """Send a value on the channel; return a token."""
        return self.send_with_token(operand, self.after_all(), channel_handle)

    def send_with_token(self, operand: Op, token: Op, channel_handle: int) -> Op:
        """Send a value after ``token``; return a token."""
        return self._send(operand, token, {"channel_id": channel_handle})

    def send_to_host(self, operand: Op, token: Op, shape_with_layout: Shape | str, channel_handle: int) -> Op:
        """Send a value to the host after ``token``; return a token."""
        attributes = {"channel_id": channel_handle, "is_host_transfer": True}
        return self._send(operand, token, attributes, as_shape(shape_with_layout))

    def recv(self, shape: Shape | str, channel_handle: int) -> Op:
        """Return the value that is sent on the channel."""
        return self.get_tuple_element(self.recv_with_token(self.after_all(), shape, channel_handle), 0)

    def recv_with_token(self, token: Op, shape: Shape | str, channel_handle: int) -> Op:
        """Return a tuple: the value that is sent on the channel after ``token``, and a token."""
        return self._recv(token, as_shape(shape), {"channel_id": channel_handle})

    def recv_from_host(self, token: Op, shape: Shape | str, channel_handle: int) -> Op:
        """Return a tuple: the value that the host sends on the channel, and a token."""
        return self._recv(token, as_shape(shape), {"channel_id": channel_handle, "is_host_transfer": True})

    def _send(self, operand: Op, token: Op, attributes: Mapping[str, Any], shape: Shape | None = None) -> Op:
        # What the host gets may have another layout than the operand on the device.
        context = TupleShape((operand.shape if shape is None else shape, U32, TOKEN))
        started = self.emit("send", [operand, token], attributes, context)
        return self.emit("send-done", [started], attributes, TOKEN)

    def _recv(self, token: Op, shape: Shape, attributes: Mapping[str, Any]) -> Op:
        started = self.emit("recv", [token], attributes, TupleShape((shape, U32, TOKEN)))
        return self.emit("recv-done", [started], attributes, TupleShape((shape, TOKEN)))
