"""Names, parameters, defaults and flags that users' own scripts rely on.

Facts about google-research/bert, revision eedf571.
"""
import inspect
import json
import os
import subprocess
import sys

import pytest

from conftest import ROOT
import modeling
import optimization
import tokenization

REQUIRED = object()

MODELING = {
    "BertConfig": [
        ("vocab_size", REQUIRED), ("hidden_size", 768),
        ("num_hidden_layers", 12), ("num_attention_heads", 12),
        ("intermediate_size", 3072), ("hidden_act", "gelu"),
        ("hidden_dropout_prob", 0.1), ("attention_probs_dropout_prob", 0.1),
        ("max_position_embeddings", 512), ("type_vocab_size", 16),
        ("initializer_range", 0.02)],
    "BertModel": [
        ("config", REQUIRED), ("is_training", REQUIRED),
        ("input_ids", REQUIRED), ("input_mask", None),
        ("token_type_ids", None), ("use_one_hot_embeddings", False),
        ("scope", None)],
    "gelu": [("x", REQUIRED)],
    "get_activation": [("activation_string", REQUIRED)],
    "get_assignment_map_from_checkpoint": [
        ("tvars", REQUIRED), ("init_checkpoint", REQUIRED)],
    "dropout": [("input_tensor", REQUIRED), ("dropout_prob", REQUIRED)],
    "layer_norm": [("input_tensor", REQUIRED), ("name", None)],
    "layer_norm_and_dropout": [
        ("input_tensor", REQUIRED), ("dropout_prob", REQUIRED),
        ("name", None)],
    "create_initializer": [("initializer_range", 0.02)],
    "embedding_lookup": [
        ("input_ids", REQUIRED), ("vocab_size", REQUIRED),
        ("embedding_size", 128), ("initializer_range", 0.02),
        ("word_embedding_name", "word_embeddings"),
        ("use_one_hot_embeddings", False)],
    "embedding_postprocessor": [
        ("input_tensor", REQUIRED), ("use_token_type", False),
        ("token_type_ids", None), ("token_type_vocab_size", 16),
        ("token_type_embedding_name", "token_type_embeddings"),
        ("use_position_embeddings", True),
        ("position_embedding_name", "position_embeddings"),
        ("initializer_range", 0.02), ("max_position_embeddings", 512),
        ("dropout_prob", 0.1)],
    "create_attention_mask_from_input_mask": [
        ("from_tensor", REQUIRED), ("to_mask", REQUIRED)],
    "attention_layer": [
        ("from_tensor", REQUIRED), ("to_tensor", REQUIRED),
        ("attention_mask", None), ("num_attention_heads", 1),
        ("size_per_head", 512), ("query_act", None), ("key_act", None),
        ("value_act", None), ("attention_probs_dropout_prob", 0.0),
        ("initializer_range", 0.02), ("do_return_2d_tensor", False),
        ("batch_size", None), ("from_seq_length", None),
        ("to_seq_length", None)],
    "transformer_model": [
        ("input_tensor", REQUIRED), ("attention_mask", None),
        ("hidden_size", 768), ("num_hidden_layers", 12),
        ("num_attention_heads", 12), ("intermediate_size", 3072),
        ("intermediate_act_fn", modeling.gelu), ("hidden_dropout_prob", 0.1),
        ("attention_probs_dropout_prob", 0.1), ("initializer_range", 0.02),
        ("do_return_all_layers", False)],
    "get_shape_list": [
        ("tensor", REQUIRED), ("expected_rank", None), ("name", None)],
    "reshape_to_matrix": [("input_tensor", REQUIRED)],
    "reshape_from_matrix": [
        ("output_tensor", REQUIRED), ("orig_shape_list", REQUIRED)],
    "assert_rank": [
        ("tensor", REQUIRED), ("expected_rank", REQUIRED), ("name", None)],
}
OPTIMIZATION = {
    "create_optimizer": [
        ("loss", REQUIRED), ("init_lr", REQUIRED),
        ("num_train_steps", REQUIRED), ("num_warmup_steps", REQUIRED),
        ("use_tpu", REQUIRED)],
    "AdamWeightDecayOptimizer": [
        ("learning_rate", REQUIRED), ("weight_decay_rate", 0.0),
        ("beta_1", 0.9), ("beta_2", 0.999), ("epsilon", 1e-6),
        ("exclude_from_weight_decay", None),
        ("name", "AdamWeightDecayOptimizer")],
}
TOKENIZATION = {
    "validate_case_matches_checkpoint": [
        ("do_lower_case", REQUIRED), ("init_checkpoint", REQUIRED)],
    "convert_to_unicode": [("text", REQUIRED)],
    "printable_text": [("text", REQUIRED)],
    "load_vocab": [("vocab_file", REQUIRED)],
    "convert_by_vocab": [("vocab", REQUIRED), ("items", REQUIRED)],
    "convert_tokens_to_ids": [("vocab", REQUIRED), ("tokens", REQUIRED)],
    "convert_ids_to_tokens": [("inv_vocab", REQUIRED), ("ids", REQUIRED)],
    "whitespace_tokenize": [("text", REQUIRED)],
    "FullTokenizer": [("vocab_file", REQUIRED), ("do_lower_case", True)],
    "BasicTokenizer": [("do_lower_case", True)],
    "WordpieceTokenizer": [
        ("vocab", REQUIRED), ("unk_token", "[UNK]"),
        ("max_input_chars_per_word", 200)],
    "_is_whitespace": [("char", REQUIRED)],
    "_is_control": [("char", REQUIRED)],
    "_is_punctuation": [("char", REQUIRED)],
}
METHODS = [
    (modeling.BertConfig, "from_dict from_json_file to_dict to_json_string"),
    (modeling.BertModel,
     "get_pooled_output get_sequence_output get_all_encoder_layers "
     "get_embedding_output get_embedding_table"),
    (tokenization.FullTokenizer,
     "tokenize convert_tokens_to_ids convert_ids_to_tokens"),
    (tokenization.BasicTokenizer, "tokenize"),
    (tokenization.WordpieceTokenizer, "tokenize"),
]

TPU = {"use_tpu": ["bool", False], "tpu_name": ["string", None],
       "tpu_zone": ["string", None], "gcp_project": ["string", None],
       "master": ["string", None], "num_tpu_cores": ["int", 8],
       "iterations_per_loop": ["int", 1000],
       "save_checkpoints_steps": ["int", 1000]}
OURS = {"num_gpus": ["int", 1], "device_type": ["string enum", "auto"],
        "all_reduce": ["string enum", "auto"], "seed": ["int", 0],
        "bucket_by_length": ["bool", False],
        "gradient_accumulation_steps": ["int", 1],
        "precision": ["string enum", "fp32"], "use_xla": ["bool", False],
        "all_reduce_packs": ["int", 4], "optimizer": ["string enum", "adamw"],
        "keep_checkpoint_max": ["int", 5], "eval_every_steps": ["int", 0],
        "keep_best": ["string", ""], "early_stopping_patience": ["int", 0],
        "worker_timeout": ["int", 600], "strict": ["bool", False]}
FLAGS = {
    "run_squad_multigpu": {
        "bert_config_file": ["string", None], "vocab_file": ["string", None],
        "output_dir": ["string", None], "train_file": ["string", None],
        "predict_file": ["string", None], "init_checkpoint": ["string", None],
        "do_lower_case": ["bool", True], "max_seq_length": ["int", 384],
        "doc_stride": ["int", 128], "max_query_length": ["int", 64],
        "do_train": ["bool", False], "do_predict": ["bool", False],
        "train_batch_size": ["int", 32], "predict_batch_size": ["int", 8],
        "learning_rate": ["float", 5e-5], "num_train_epochs": ["float", 3.0],
        "warmup_proportion": ["float", 0.1], "n_best_size": ["int", 20],
        "max_answer_length": ["int", 30], "verbose_logging": ["bool", False],
        "version_2_with_negative": ["bool", False],
        "null_score_diff_threshold": ["float", 0.0],
        "num_workers": ["int", None]},
    "run_classifier_multigpu": {
        "data_dir": ["string", None], "bert_config_file": ["string", None],
        "task_name": ["string", None], "vocab_file": ["string", None],
        "output_dir": ["string", None], "init_checkpoint": ["string", None],
        "do_lower_case": ["bool", True], "max_seq_length": ["int", 128],
        "do_train": ["bool", False], "do_eval": ["bool", False],
        "do_predict": ["bool", False], "train_batch_size": ["int", 32],
        "eval_batch_size": ["int", 8], "predict_batch_size": ["int", 8],
        "learning_rate": ["float", 5e-5], "num_train_epochs": ["float", 3.0],
        "warmup_proportion": ["float", 0.1], "text_a_column": ["string", ""],
        "text_b_column": ["string", ""], "label_column": ["string", ""],
        "multi_label": ["bool", False], "num_workers": ["int", None]},
    "run_pretraining_multigpu": {
        "input_file": ["string", None], "bert_config_file": ["string", None],
        "output_dir": ["string", None], "init_checkpoint": ["string", None],
        "max_seq_length": ["int", 128], "max_predictions_per_seq": ["int", 20],
        "do_train": ["bool", False], "do_eval": ["bool", False],
        "train_batch_size": ["int", 32], "eval_batch_size": ["int", 8],
        "learning_rate": ["float", 5e-5], "num_train_steps": ["int", 100000],
        "num_warmup_steps": ["int", 10000], "max_eval_steps": ["int", 100]},
}
# Positional parameters of functions and classes of the run scripts.
SCRIPTS = {
    "run_squad_multigpu": {
        "SquadExample": "qas_id question_text doc_tokens orig_answer_text "
                        "start_position end_position is_impossible",
        "InputFeatures": "unique_id example_index doc_span_index tokens "
                         "token_to_orig_map token_is_max_context input_ids "
                         "input_mask segment_ids start_position end_position "
                         "is_impossible",
        "read_squad_examples": "input_file is_training",
        "convert_examples_to_features":
            "examples tokenizer max_seq_length doc_stride max_query_length "
            "is_training output_fn",
        "_improve_answer_span":
            "doc_tokens input_start input_end tokenizer orig_answer_text",
        "_check_is_max_context": "doc_spans cur_span_index position",
        "create_model": "bert_config is_training input_ids input_mask "
                        "segment_ids use_one_hot_embeddings",
        "model_fn_builder":
            "bert_config init_checkpoint learning_rate num_train_steps "
            "num_warmup_steps use_tpu use_one_hot_embeddings",
        "input_fn_builder": "input_file seq_length is_training drop_remainder",
        "write_predictions":
            "all_examples all_features all_results n_best_size "
            "max_answer_length do_lower_case output_prediction_file "
            "output_nbest_file output_null_log_odds_file",
        "get_final_text": "pred_text orig_text do_lower_case",
        "_get_best_indexes": "logits n_best_size",
        "_compute_softmax": "scores",
        "FeatureWriter": "filename is_training",
        "validate_flags_or_throw": "bert_config",
        "main": "_"},
    "run_classifier_multigpu": {
        "InputExample": "guid text_a text_b label",
        "InputFeatures": "input_ids input_mask segment_ids label_id "
                         "is_real_example",
        "PaddingInputExample": "",
        "convert_single_example":
            "ex_index example label_list max_seq_length tokenizer",
        "convert_examples_to_features":
            "examples label_list max_seq_length tokenizer",
        "file_based_convert_examples_to_features":
            "examples label_list max_seq_length tokenizer output_file",
        "file_based_input_fn_builder":
            "input_file seq_length is_training drop_remainder",
        "input_fn_builder": "features seq_length is_training drop_remainder",
        "_truncate_seq_pair": "tokens_a tokens_b max_length",
        "create_model": "bert_config is_training input_ids input_mask "
                        "segment_ids labels num_labels use_one_hot_embeddings",
        "model_fn_builder":
            "bert_config num_labels init_checkpoint learning_rate "
            "num_train_steps num_warmup_steps use_tpu use_one_hot_embeddings",
        "XnliProcessor": "", "MnliProcessor": "", "MrpcProcessor": "",
        "ColaProcessor": "", "DataProcessor": ""},
    "run_pretraining_multigpu": {
        "model_fn_builder":
            "bert_config init_checkpoint learning_rate num_train_steps "
            "num_warmup_steps use_tpu use_one_hot_embeddings",
        "get_masked_lm_output": "bert_config input_tensor output_weights "
                                "positions label_ids label_weights",
        "get_next_sentence_output": "bert_config input_tensor labels",
        "gather_indexes": "sequence_tensor positions",
        "input_fn_builder": "input_files max_seq_length "
                            "max_predictions_per_seq is_training "
                            "num_cpu_threads"},
}


@pytest.mark.parametrize("module, table", [
    (modeling, MODELING), (optimization, OPTIMIZATION),
    (tokenization, TOKENIZATION)], ids=["modeling", "optimization",
                                        "tokenization"])
def test_signatures(module, table):
  for name, wanted in table.items():
    parameters = inspect.signature(getattr(module, name)).parameters.values()
    found = [(p.name, REQUIRED if p.default is p.empty else p.default)
             for p in parameters if p.kind != p.KEYWORD_ONLY]
    assert found == wanted, name
    # What we add must not get in the way of old calls.
    assert all(p.default is not p.empty for p in parameters
               if p.kind == p.KEYWORD_ONLY), name


def test_methods():
  for cls, names in METHODS:
    for name in names.split():
      assert callable(getattr(cls, name)), (cls, name)


@pytest.mark.parametrize("script", sorted(FLAGS))
def test_run_script(script):
  """One subprocess: importing two run scripts in one is an error of absl."""
  output = subprocess.run(
      [sys.executable, str(ROOT / "tests" / "describe_flags.py"), script]
      + sorted(SCRIPTS[script]),
      cwd=str(ROOT), env=dict(os.environ, PYTHONPATH=str(ROOT)),
      stdout=subprocess.PIPE, check=True, text=True).stdout
  described = json.loads(output.splitlines()[-1])
  assert described["flags"] == dict(TPU, **OURS, **FLAGS[script])
  signatures = described["signatures"]
  for name, wanted in SCRIPTS[script].items():
    assert " ".join(signatures[name]) == wanted, name
