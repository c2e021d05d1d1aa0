"""tokenization.py: Google's results on recorded strings, and its limits."""
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenization
from benchmarks import squad_features as plain

VOCABULARIES = ("uncased", "cased", "chinese", "multi_cased")

ENTRIES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "boat", "##s",
           "##ing", "sail", "##or", ",", ".", "!", "a", "e", "##e", "\u4e2d",
           "un", "##want", "##ed", "\u00e9t\u00e9"]


def write_vocab(folder, entries, end="\n"):
  path = folder / "vocab.txt"
  path.write_bytes("".join(entry + end for entry in entries).encode("utf-8"))
  return str(path)


@pytest.fixture(name="vocab_file")
def make_vocab_file(tmp_path):
  return write_vocab(tmp_path, ENTRIES)


def read_json(path):
  return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", VOCABULARIES)
def test_golden_strings(shared, name):
  folder = shared / "golden" / "tokenizer"
  strings = [record["text"] for record in read_json(folder / "strings.json")]
  golden = read_json(folder / (name + ".json"))
  lower = golden["do_lower_case"]
  full = tokenization.FullTokenizer(
      str(shared / "data" / "vocab" / name / "vocab.txt"), do_lower_case=lower)
  basic = tokenization.BasicTokenizer(do_lower_case=lower)
  wordpiece = tokenization.WordpieceTokenizer(full.vocab)
  assert len(full.vocab) == golden["vocab_entries"]
  assert len(strings) == len(golden["results"]) == 300
  for text, wanted in zip(strings, golden["results"]):
    for _ in range(2):  # from scratch, and from what is remembered
      pieces = full.tokenize(text)
      assert pieces == wanted["pieces"], repr(text)
    assert full.convert_tokens_to_ids(pieces) == wanted["ids"], repr(text)
    assert basic.tokenize(text) == wanted["basic"], repr(text)
    assert wordpiece.tokenize(" ".join(wanted["basic"])) == wanted["pieces"]


def test_strings_that_trouble_users(shared):
  folder = shared / "cases" / "32-tokenizer-strings"
  strings = read_json(folder / "strings.json")
  wanted = read_json(folder / "google_output.json")
  full = tokenization.FullTokenizer(
      str(shared / "cases" / "_shared" / "vocab.txt"), do_lower_case=True)
  assert len(strings) == len(wanted) > 0
  for text, result in zip(strings, wanted):
    assert full.basic_tokenizer.tokenize(text) == result["basic"], repr(text)
    assert full.tokenize(text) == result["wordpiece"], repr(text)


def test_whole_text_is_the_sum_of_its_lines(shared):
  """Words are remembered one by one; the text around them must not matter."""
  vocab = str(shared / "data" / "vocab" / "uncased" / "vocab.txt")
  path = shared / "data" / "text" / "novels_en.txt"
  text = path.read_text(encoding="utf-8")[:60000]
  straight = plain.PlainTokenizer(vocab).tokenize(text)
  full = tokenization.FullTokenizer(vocab)
  assert full.tokenize(text) == straight
  lines = text.split("\n")
  assert [piece for line in lines for piece in full.tokenize(line)] == straight


ODD_TEXT = st.text(st.one_of(
    st.characters(),
    st.sampled_from("Aae sS\t\n\r\x0b\x0c\x1c\x1f\x85\xa0\u2028\u3000\u0301"
                    "\u0130\u03a3\u03c3\u00df\u4e2d\u00ad\ufffd\0.,!$\ud800")),
                   max_size=30)


@pytest.fixture(name="pairs", scope="module")
def make_pairs(tmp_path_factory):
  """{do_lower_case: (our tokenizer, the straightforward one)}."""
  path = write_vocab(tmp_path_factory.mktemp("vocab"), ENTRIES)
  return {lower: (tokenization.FullTokenizer(path, do_lower_case=lower),
                  plain.PlainTokenizer(path, do_lower_case=lower))
          for lower in (True, False)}


@settings(max_examples=200, deadline=None)
@given(text=ODD_TEXT, lower=st.booleans())
def test_any_text_as_a_straightforward_tokenizer(pairs, text, lower):
  full, reference = pairs[lower]
  pieces = full.tokenize(text)
  assert pieces == reference.tokenize(text)
  assert full.tokenize(text) == pieces
  assert full.basic_tokenizer.tokenize(text) == reference.split(text)
  assert all(0 <= index < len(ENTRIES)
             for index in full.convert_tokens_to_ids(pieces))


def test_full_tokenizer(vocab_file):
  full = tokenization.FullTokenizer(vocab_file)
  pieces = full.tokenize(b"The SAILORS, unwanted \xff!")
  assert pieces == ["the", "sail", "##or", "##s", ",", "un", "##want", "##ed",
                    "!"]
  ids = full.convert_tokens_to_ids(pieces)
  assert ids == [ENTRIES.index(piece) for piece in pieces]
  assert full.convert_ids_to_tokens(ids) == pieces
  assert full.vocab["boat"] == 6 and full.inv_vocab[6] == "boat"


def test_case_and_accents(vocab_file):
  text = "\u00c9t\u00e9 The"
  assert tokenization.BasicTokenizer().tokenize(text) == ["ete", "the"]
  cased = tokenization.FullTokenizer(vocab_file, do_lower_case=False)
  assert cased.tokenize("\u00e9t\u00e9 The") == ["\u00e9t\u00e9", "[UNK]"]


def test_result_belongs_to_the_caller(vocab_file):
  full = tokenization.FullTokenizer(vocab_file)
  full.tokenize("sailing").append("changed")
  assert full.tokenize("sailing") == ["sail", "##ing"]


def test_memory_is_bounded(vocab_file, monkeypatch):
  monkeypatch.setattr(tokenization, "_MAX_CACHED_WORDS", 10)
  full = tokenization.FullTokenizer(vocab_file)
  words = ["boats" + "s" * i for i in range(50)] + ["a" * 100]
  assert full.tokenize(" ".join(words)) == [
      piece for word in words for piece in full.tokenize(word)]
  assert 0 < len(full._known_words) <= 10
  assert max(map(len, full._known_words)) <= tokenization._MAX_CACHED_CHARS


def test_wordpiece_limits():
  vocab = ["a", "##a", "[UNK]", "big"]
  cut = tokenization.WordpieceTokenizer(vocab, max_input_chars_per_word=4)
  assert cut.tokenize("aaaa") == ["a", "##a", "##a", "##a"]
  assert cut.tokenize("aaaaa big ab") == ["[UNK]", "big", "[UNK]"]
  other = tokenization.WordpieceTokenizer(vocab, unk_token="<unk>")
  assert other.tokenize(" x\n") == ["<unk>"]
  assert tokenization.WordpieceTokenizer({}).tokenize("a") == ["[UNK]"]


def test_load_vocab_splits_at_newline_only(tmp_path):
  path = tmp_path / "vocab.txt"
  path.write_bytes("\ufeff[PAD]\na \n\u2028\n##\u2028\n\nb\x0bc\r\nd".encode())
  vocab = tokenization.load_vocab(str(path))
  # U+2028 is white space and is stripped like it, as it always was.
  assert list(vocab.items()) == [("[PAD]", 0), ("a", 1), ("", 4), ("##", 3),
                                 ("b\x0bc", 5), ("d", 6)]


def test_load_vocab_that_is_no_text(tmp_path):
  path = tmp_path / "vocab.txt"
  path.write_bytes(b"a\nb\n\xff\xfe\n")
  with pytest.raises(ValueError, match=r"vocab\.txt .*0xff in line 3"):
    tokenization.load_vocab(str(path))


def test_unknown_items_are_named():
  with pytest.raises(KeyError, match="'boot'.* 1 entries"):
    tokenization.convert_tokens_to_ids({"boat": 0}, ["boat", "boot"])
  with pytest.raises(KeyError, match="7"):
    tokenization.convert_ids_to_tokens({0: "boat"}, [7])
  assert tokenization.convert_by_vocab({"boat": 3}, ["boat"]) == [3]


def test_text_may_be_bytes():
  for convert in (tokenization.convert_to_unicode, tokenization.printable_text):
    assert convert("\u00e9") == "\u00e9"
    assert convert(b"\xc3\xa9\xff!") == "\u00e9!"
    with pytest.raises(ValueError, match="int"):
      convert(3)


def test_whitespace_tokenize():
  assert tokenization.whitespace_tokenize(" a\u2028b\t c\n") == ["a", "b", "c"]
  assert tokenization.whitespace_tokenize(" \n") == []


@pytest.mark.parametrize("function, members, others", [
    (tokenization._is_whitespace, " \t\r\n\u00a0\u3000", "A-\u2028\x0b"),
    (tokenization._is_control, "\x05\x0b\x85\u200b\u00ad",
     "A \t\r\n\U0001f4a9\ue000\ud800"),
    (tokenization._is_punctuation, "-$`.^~!\u00bf\u2013", "A 0\u02bc\u20ac"),
])
def test_character_classes(function, members, others):
  assert [char for char in members if not function(char)] == []
  assert [char for char in others if function(char)] == []


@pytest.mark.parametrize("lower, checkpoint", [
    (True, "/m/uncased_L-12_H-768_A-12/bert_model.ckpt"),
    (False, "gs://m/multi_cased_L-12_H-768_A-12/bert_model.ckpt"),
    (False, "cased_L-24_H-1024_A-16/bert_model.ckpt"),
    (False, "my_uncased/bert_model.ckpt"),
    (False, "uncased_L-12_H-768_A-12/model.ckpt-100"),
    (False, None), (True, ""),
])
def test_case_that_may_match_the_checkpoint(lower, checkpoint):
  tokenization.validate_case_matches_checkpoint(lower, checkpoint)


@pytest.mark.parametrize("lower, checkpoint", [
    (False, "/m/uncased_L-12_H-768_A-12/bert_model.ckpt"),
    (False, "chinese_L-12_H-768_A-12/bert_model.ckpt"),
    (True, "/m/cased_L-12_H-768_A-12/bert_model.ckpt"),
    (True, "multi_cased_L-12_H-768_A-12/bert_model.ckpt"),
])
def test_case_that_cannot_match_the_checkpoint(lower, checkpoint):
  with pytest.raises(ValueError) as caught:
    tokenization.validate_case_matches_checkpoint(lower, checkpoint)
  assert "--do_lower_case=%s," % lower in str(caught.value)
  assert "pass --do_lower_case=%s," % (not lower) in str(caught.value)
  assert checkpoint in str(caught.value)
