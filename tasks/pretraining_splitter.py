"""The tokenized corpus -> windows of consecutive documents, on disk."""
import os
from typing import Any, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from tasks.pretraining_corpus import TokenizedBlock


class WindowFiles(NamedTuple):
  """A tokenized window on disk: the arrays of a TokenizedBlock, as int32."""
  lengths: str
  ids: str


class WindowSplitter:
  """Writes tokenized blocks to disk, window by window.

  Attributes:
    num_cut: how often a document was cut, because a window would have become
      twice as large as it should be.
  """

  def __init__(self, folder: str, window_pieces: int):
    """Creates it.

    Args:
      folder: where the files go.
      window_pieces: a window ends with the document with which it reaches so
        many word pieces.
    """
    self._folder = folder
    self._window_pieces = window_pieces
    self._num_windows = 0
    self._num_pieces = 0  # of the window that is being written
    self._current: Optional[WindowFiles] = None
    # A full window waits until the next one is half full. If that never
    # happens, the two become one: few documents alone would mostly be their
    # own "random" next.
    self._waiting: List[WindowFiles] = []
    self.num_cut = 0

  def add(self, block: TokenizedBlock) -> Iterator[List[WindowFiles]]:
    """Takes the next block; yields the windows that are complete."""
    lengths, ids = block.lengths, block.ids
    while len(lengths):
      num_sentences, is_end = self._find_end(lengths)
      num_pieces = int(lengths[:num_sentences].sum())
      self._write(lengths[:num_sentences], ids[:num_pieces])
      if self._waiting and 2 * self._num_pieces >= self._window_pieces:
        yield self._waiting
        self._waiting = []
      if is_end:
        assert self._current is not None  # just written
        self._waiting, self._current = [self._current], None
        self._num_pieces = 0
      lengths, ids = lengths[num_sentences:], ids[num_pieces:]

  def finish(self) -> Iterator[List[WindowFiles]]:
    """Yields what is left, at most one window."""
    rest = self._waiting + ([self._current] if self._current else [])
    if rest:
      yield rest

  def _find_end(self, lengths: Any) -> Tuple[int, bool]:
    """Returns how many entries belong to this window, whether it then ends."""
    pieces = self._num_pieces + np.cumsum(lengths)
    is_full = (lengths == 0) & (pieces >= self._window_pieces)
    is_too_long = pieces >= 2 * self._window_pieces
    ends = np.flatnonzero(is_full | is_too_long)
    if not len(ends):
      return len(lengths), False
    self.num_cut += int(not is_full[ends[0]])
    return int(ends[0]) + 1, True

  def _write(self, lengths: Any, ids: Any) -> None:
    if self._current is None:
      name = os.path.join(self._folder, "window-%d" % self._num_windows)
      self._current = WindowFiles(name + ".lengths", name + ".ids")
      self._num_windows += 1
    for path, values in zip(self._current, (lengths, ids)):
      with open(path, "ab") as writer:
        values.tofile(writer)
    self._num_pieces += len(ids)
