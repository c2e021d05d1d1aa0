"""Text files -> pre-training records, with several processes.

This process reads blocks of text and hands out the work: blocks to tokenize,
windows to make records of (each by one worker, see tasks/pretraining_windows).
It holds a few blocks and no more. The results are the same for any number of
workers.
"""
import collections
from concurrent import futures
import logging
import os
import tempfile
from typing import Any, Deque, Iterator, List, NamedTuple

from multigpu.errors import UserError
from multigpu.files import remove_leftovers, temporary_name
from tasks import pretraining_corpus as corpus
from tasks import pretraining_files as files
from tasks import skipped
from tasks.pretraining_pairs import NUM_MARKERS, InstanceSettings
from tasks.pretraining_splitter import WindowFiles, WindowSplitter
from tasks.pretraining_windows import WindowResult, WindowTask
from tasks.pretraining_workers import Progress, Worker
from tasks.workers import WorkerDiedError, Workers

_LOG = logging.getLogger(__name__)

# A pair of one piece each.
_MIN_SEQ_LENGTH = NUM_MARKERS + 2

# With less text a worker costs more (it has to learn the words) than it helps.
_BYTES_PER_WORKER = 1 << 20

_LAYOUT = ("The text must have one sentence a line, the sentences of a "
           "document on consecutive lines and a blank line between documents.")

# Word pieces: about 35 MB of English text.
DEFAULT_SHUFFLE_WINDOW = 1 << 23


class CorpusSettings(NamedTuple):
  """What to read and to write, and how; names are those of the flags."""
  input_files: List[str]
  output_files: List[str]
  vocab_file: str
  do_lower_case: bool = True
  random_seed: int = 12345
  shuffle_window: int = DEFAULT_SHUFFLE_WINDOW
  num_workers: int = 1
  strict: bool = False  # a line that cannot be used is an error


class Counts(NamedTuple):
  """What the corpus has given."""
  documents: int = 0
  sentences: int = 0
  instances: int = 0
  random_next: int = 0


def check_settings(settings: InstanceSettings) -> None:
  """Checks what can be wrong with the lengths.

  Raises:
    UserError: --max_seq_length leaves no room for a pair.
  """
  if settings.max_seq_length < _MIN_SEQ_LENGTH:
    raise UserError(
        "--max_seq_length=%d: [CLS], [SEP], [SEP] and a word piece of each of "
        "the two texts need at least %d."
        % (settings.max_seq_length, _MIN_SEQ_LENGTH))


def create_records(where: CorpusSettings,
                   settings: InstanceSettings) -> Counts:
  """Writes the pre-training records of a corpus.

  Args:
    where: files, seed, workers.
    settings: what instances look like.

  Returns:
    Counts of what was written.

  Raises:
    UserError: wrong settings or files, a byte that is not UTF-8, a corpus
      without a sentence. Nothing is written then.
  """
  check_settings(settings)
  files.check_outputs(where.output_files,
                      where.input_files + [where.vocab_file], "output_file")
  ids = corpus.load_vocabulary(where.vocab_file)
  vocabulary = corpus.Vocabulary(ids, settings.do_whole_word_mask)
  sizes = list(map(files.get_size, where.input_files))
  num_workers = min(where.num_workers, sum(sizes) // _BYTES_PER_WORKER + 1)
  worker = Worker(vocabulary, where.do_lower_case, settings)
  for parent in sorted({os.path.dirname(path) or "."
                        for path in where.output_files}):
    remove_leftovers(parent)
  try:
    with files.OutputFiles(where.output_files, "output_file") as outputs:
      with _make_scratch_folder(where.output_files[0]) as folder:
        with Workers(worker, num_workers) as workers:
          with Progress(sum(sizes), workers) as progress:
            run = _Run(where, folder, outputs, workers, progress)
            run.run()
      run.check()
  except WorkerDiedError as error:
    raise UserError(
        "a worker process was killed, probably for want of memory: pass a "
        "smaller --num_workers or --shuffle_window.") from error
  except OSError as error:
    raise UserError("--output_file: making %s failed: %s. Its folder needs "
                    "room for about three times the records." % (
                        where.output_files[0], error)) from error
  return run.counts


def _make_scratch_folder(output_file: str) -> Any:
  """Makes a temporary folder beside the output, where there must be room."""
  parent = None
  if not files.is_remote(output_file):
    parent = os.path.dirname(os.path.abspath(output_file))
  # With a name by which a later run knows what a killed one has left.
  return tempfile.TemporaryDirectory(
      prefix=".pretraining-data-", suffix=temporary_name(""), dir=parent)


class _Run:
  """One pass over a corpus."""

  def __init__(self, where: CorpusSettings, folder: str,
               outputs: files.OutputFiles, workers: Workers,
               progress: Progress):
    self._where = where
    self._folder = folder
    self._outputs = outputs
    self._workers = workers
    self._progress = progress
    self._windows: Deque["futures.Future[WindowResult]"] = collections.deque()
    self._num_windows = 0
    self._reader = corpus.CorpusReader(where.input_files)
    self._splitter = WindowSplitter(folder, where.shuffle_window)
    self._num_skipped = 0
    self._skipped: List[str] = []  # the first few
    self.counts = Counts()

  def run(self) -> None:
    """Does it."""
    for block in self._tokenize():
      for window in self._splitter.add(block):
        self._start_window(window)
    for window in self._splitter.finish():
      self._start_window(window)
    while self._windows:
      self._finish_window()

  def _tokenize(self) -> Iterator[corpus.TokenizedBlock]:
    """Tokenizes the blocks, some ahead, and yields them in order."""
    ahead: Deque[Any] = collections.deque()
    for block in self._reader:
      future = self._workers.submit("tokenize", block)
      ahead.append((len(block.content), future))
      if len(ahead) > 2 * self._workers.num_workers:
        yield self._finish_block(*ahead.popleft())
    while ahead:
      yield self._finish_block(*ahead.popleft())

  def _finish_block(self, num_bytes: int, future: Any) -> corpus.TokenizedBlock:
    block = self._progress.wait(future)
    self._progress.add_bytes(num_bytes)
    self._num_skipped += len(block.skipped)
    room = skipped.NAMED_ITEMS - len(self._skipped)
    self._skipped += block.skipped[:room]
    if block.skipped and self._where.strict:
      self._tell_skipped()
    return block

  def _tell_skipped(self) -> None:
    """Names the lines that are left out; an error with --strict."""
    more = self._num_skipped - len(self._skipped)
    skipped.report(_LOG, "--input_file: skipped %d lines of characters that "
                   "BERT drops (control characters, accents alone): %s%s" % (
                       self._num_skipped, "; ".join(self._skipped),
                       " and %d more" % more if more else ""),
                   self._where.strict)

  def _start_window(self, window: List[WindowFiles]) -> None:
    while len(self._windows) > self._workers.num_workers:
      self._finish_window()
    parts = [os.path.join(self._folder, "part-%d-%d" % (self._num_windows, i))
             for i in range(len(self._where.output_files))]
    self._windows.append(self._workers.submit("write_window", WindowTask(
        self._num_windows, window, self._where.random_seed, parts)))
    self._num_windows += 1

  def _finish_window(self) -> None:
    """Appends the records of the oldest window to the outputs."""
    result = self._progress.wait(self._windows.popleft())
    # The first record of this window has its turn after the last one's.
    shift = self.counts.instances
    for turn, part in enumerate(result.parts, shift):
      self._outputs.append(turn % len(result.parts), part)
      os.remove(part)
    self.counts = Counts(
        self.counts.documents + result.num_documents,
        self.counts.sentences + result.num_sentences,
        self.counts.instances + result.num_instances,
        self.counts.random_next + result.num_random_next)

  def check(self) -> None:
    """Warns of a corpus that is probably not laid out as it should be.

    Raises:
      UserError: it has no sentence at all.
    """
    if self._num_skipped:
      self._tell_skipped()
    counts, open_ended = self.counts, self._reader.open_ended
    if not counts.instances:
      names = self._where.input_files
      raise UserError("--input_file: no sentence in %s%s. %s" % (
          ", ".join(names[:3]),
          " and %d more" % (len(names) - 3) if len(names) > 3 else "", _LAYOUT))
    if counts.documents == counts.sentences:
      _LOG.warning("every document has one sentence: all next sentences are "
                   "random ones. %s", _LAYOUT)
    if counts.documents == 1:
      _LOG.warning("there is only one document: random next sentences come "
                   "from it, too. %s", _LAYOUT)
    if open_ended:
      _LOG.warning("%d input files, %s the first of them, do not end with a "
                   "blank line: their last document goes on in the next file.",
                   len(open_ended), open_ended[0])
    if self._splitter.num_cut:
      _LOG.warning("%d times a document was cut, because it is longer than "
                   "--shuffle_window=%d word pieces. %s If it is so, pass a "
                   "larger window.", self._splitter.num_cut,
                   self._where.shuffle_window, _LAYOUT)
    if self._num_windows > 1:
      _LOG.info("The corpus was processed in %d windows of --shuffle_window=%d "
                "word pieces: shuffled within each, not across them.",
                self._num_windows, self._where.shuffle_window)
