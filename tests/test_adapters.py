"Adapters: what people have, behind the protocol; the real libraries on models made here."
import json, sys
import numpy as np
import pytest
from hypothesis import given, strategies as st
from conftest import fast, gold_of, run_command as run, toy_data, toy_items
from polyroute import adapters as a
from polyroute.items import DEPARTMENT, DataError, Dataset, Item, Question
from polyroute.predictions import frozen
from polyroute.systems import System, UnsupportedQuestion, evaluate, get, read_card

SEVEN = Question('intent', 'choice', 'What is wanted?', tuple((f'intent {i}', f'wish number {i}') for i in range(7)))
LEVEL = Question('urgency', 'score', 'How urgent?', (('0', 'not at all'), ('1', 'somewhat'), ('2', 'very')))
URGENT = Question('urgent', 'noul', 'Is it urgent?', (('false', ''), ('true', '')))
questions = st.sampled_from([DEPARTMENT, SEVEN, LEVEL, URGENT])


# what a model may answer

@fast
@given(questions, st.integers(0, 5), st.integers(0, 9), st.randoms())
def test_three_forms_of_the_same_answers(q, n, seed, shuffle):
    p = np.random.default_rng(seed).dirichlet(np.ones(len(q.options)), n).round(4)
    p[:, 0] += 1 - p.sum(axis=1) if n else 0
    as_dicts = [{q.expected(o): np.float32(v) for o, v in shuffle.sample(list(zip(q.options, row)), len(row))} for row in p]
    assert np.allclose(a.as_probabilities(as_dicts, q), p, atol=1e-6) if n else a.as_probabilities(as_dicts, q).size == 0
    assert (a.as_probabilities(p, q) == p).all() and (a.as_probabilities(p.tolist(), q) == p.reshape(np.shape(p.tolist()))).all()
    labels = [q.expected(q.options[i]) for i in p.argmax(axis=1)]
    one = a.as_probabilities(labels, q, labels_only=True)
    assert one.shape == (n, len(q.options)) and (one.argmax(axis=1) == p.argmax(axis=1)).all() and (one.sum(axis=1) == 1).all()

@pytest.mark.parametrize('answers, labels_only, words', [(['billing'], False, 'labels_only=True'), ([[1, 0, 0]], True, 'labels_only=True'), (['sales'], True, "'sales'"), ([{'billing': 1}], False, "'technical'"), ([{'billing': .5, 'technical': .2, 'other': .2}], False, 'sum'),
                                                         ([{'billing': float('nan'), 'technical': .5, 'other': .5}], False, 'billing'), ([None], True, 'None'), ([[1, 0], [1]], False, 'read'), ([{'billing': None, 'technical': 1, 'other': 0}], False, 'read'),
                                                         (None, False, 'returned None'), (None, True, 'returned None'), (5, False, 'returned int'), (np.array(.5), False, 'returned ndarray'), ({'billing': 1}, False, 'returned dict'), ('billing', True, 'returned str'), (iter([[1, 0, 0]]), False, 'returned list_iterator')])
def test_answers_that_are_none(answers, labels_only, words):
    with pytest.raises(DataError, match=words): a.as_probabilities(answers, DEPARTMENT, labels_only)


# functions

def constant(texts, question): return np.full((len(texts), len(question.options)), 1/len(question.options))
def other_constant(texts, question): return [dict.fromkeys(question.options, 1/len(question.options)) for _ in texts]

def test_a_function_is_a_system_for_any_question(home):
    s = a.from_function(constant, 'constant', track='A', exposure='none')
    assert isinstance(s, System)
    for q in (DEPARTMENT, SEVEN, LEVEL, URGENT):
        evaluate(s, toy_data(home/'data'/f'x_{q.name}.jsonl', question=q), home/'out')
        assert len(frozen('constant', f'x_{q.name}', home/'out')) == 12
    assert read_card('constant', home/'out').exposure == 'none'

def test_versions_follow_the_source():
    one, two = a.from_function(constant, 'f').card.version, a.from_function(other_constant, 'f').card.version
    assert one != two and one == a.from_function(constant, 'f').card.version
    assert a.from_function(constant, 'f', version='1.0').card.version == '1.0'

def test_exposure_is_not_made_up():
    assert a.from_function(constant, 'f').card.exposure == 'not stated' and a.from_function(constant, 'f').card.track == 'ref'

def test_one_question_only():
    with pytest.raises(UnsupportedQuestion): a.from_function(constant, 'f', DEPARTMENT).predict(['x'], SEVEN)
    assert a.from_function(constant, 'f').predict([], SEVEN).shape[0] == 0

def test_labels_only_stands_in_the_header(home):
    s = a.from_function(lambda texts, q: [q.options[gold_of(t)] for t in texts], 'labels', labels_only=True)
    evaluate(s, 'ml_test', home/'out')
    p = frozen('labels', 'ml_test', home/'out')
    assert p.header.labels_only and p.hit.all()


# scikit-learn

@pytest.fixture(scope='module')
def sklearn(): return pytest.importorskip('sklearn')

def pipeline(last=None):
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    return make_pipeline(TfidfVectorizer(analyzer='char'), last or LogisticRegression(C=100))

def rows(question, n=70): return Dataset('mine', toy_items(n, question, state=lambda i: 'text'), 'abc')

@pytest.mark.parametrize('q', [DEPARTMENT, SEVEN, LEVEL, URGENT], ids=lambda q: q.name)
def test_an_estimator_for_any_number_of_classes(home, sklearn, q):
    data = toy_data(home/'data'/'mine.jsonl', 42, question=q, state=lambda i: 'text')
    s = a.from_sklearn(pipeline(), 'sk', rows(q))
    assert s.question == q and s.card.training is None and s.card.training_rows == 70
    evaluate(s, data, home/'out')
    p = frozen('sk', 'mine', home/'out', data)
    assert p.hit.all() and p.probs.shape == (42, len(q.options)) and (p.probs > 0).all()
    with pytest.raises(UnsupportedQuestion): s.predict(['x'], Question('else', 'choice', '', (('a', ''), ('b', ''))))

def test_columns_follow_the_options_not_the_classes(sklearn):
    "Options in an order that is not the alphabet's, classes of every kind of label."
    q = Question('q', 'choice', '', (('z', ''), ('a', ''), ('m', '')))
    texts, gold = ['zz', 'aa', 'mm'], ['z', 'a', 'm']
    est = pipeline().fit(texts, gold)
    p = a.from_sklearn(est, 'x', question=q).predict(texts, q)
    assert p.argmax(axis=1).tolist() == [0, 1, 2]
    assert np.allclose(p, est.predict_proba(texts)[:, [2, 0, 1]])
    assert a.from_sklearn(pipeline().fit(['aa', 'bb', 'cc'], [2, 0, 1]), 'x', question=LEVEL).predict(['bb'], LEVEL).argmax() == 0
    assert a.from_sklearn(pipeline().fit(['aa', 'bb'], [True, False]), 'x', question=URGENT).predict(['aa'], URGENT).argmax() == 1

def test_an_option_without_training_rows_is_never_chosen(sklearn):
    d = rows(SEVEN).select(np.arange(70) % 7 != 3)
    p = a.from_sklearn(pipeline(), 'x', d).predict(['3 text', '1 text'], SEVEN)
    assert (p[:, 3] == 0).all() and np.allclose(p.sum(axis=1), 1)

def test_an_estimator_without_probabilities_is_labels_only(sklearn):
    from sklearn.svm import LinearSVC
    s = a.from_sklearn(pipeline(LinearSVC()), 'svm', rows(SEVEN))
    assert s.labels_only and set(s.predict(['3 text'], SEVEN)[0]) == {0, 1}

def test_test_splits_are_no_training_rows(sklearn):
    for split in ('ml_test', 'ml_hard', 'boundary'):
        with pytest.raises(DataError, match='no training set'): a.from_sklearn(pipeline(), 'x', split)

def test_the_card_knows_the_training_set(sklearn):
    c = a.from_sklearn(pipeline(), 'x', 'train_ml').card
    from polyroute.items import load
    from polyroute.systems import EXPOSURE
    assert (c.training, c.exposure, c.training_rows) == ('train_ml', EXPOSURE['train_ml'], len(load('train_ml').department()))
    assert len({c.version, a.from_sklearn(pipeline().set_params(logisticregression__C=1), 'x', 'train_ml').card.version, a.from_sklearn(pipeline(), 'x', 'train').card.version}) == 3

def test_the_users_estimator_is_left_alone(sklearn):
    e = pipeline()
    a.from_sklearn(e, 'x', rows(SEVEN)).predict(['1 text'], SEVEN)
    assert not hasattr(e[-1], 'classes_')


# encoders

def letters(texts): return [[t.count(c) for c in 'abcdefghijklmnopqrstuvwxyz '] for t in texts]

class Encoder:
    "As sentence-transformers has it."
    def encode(self, texts): return np.array(letters(texts), dtype=np.float32)

def test_encode_answers_any_question():
    s = a.from_encoder(Encoder(), 'letters', temperature=.05)
    for q in (DEPARTMENT, SEVEN, LEVEL, URGENT):
        p = s.predict([o for o in a.option_texts(q)], q)
        assert p.shape == (len(q.options),)*2 and np.allclose(p.sum(axis=1), 1)
    assert (s.predict(a.option_texts(DEPARTMENT), DEPARTMENT).argmax(axis=1) == np.arange(3)).all()
    assert s.card.exposure == 'none' and s.card.training is None
    assert np.isfinite(s.predict([''], DEPARTMENT)).all(), 'a vector of zeros'

def test_the_temperature_is_fitted_to_training_rows():
    s, fixed = a.from_encoder(letters, 'letters'), a.from_encoder(letters, 'letters', temperature=.05)
    assert s.card.training == 'train' and 'one temperature' in s.card.exposure and s.card.version != fixed.card.version
    p, q = s.predict(['a refund please', 'it is broken'], DEPARTMENT), fixed.predict(['a refund please', 'it is broken'], DEPARTMENT)
    assert (p.argmax(axis=1) == q.argmax(axis=1)).all() and not np.allclose(p, q)

def test_prefixes_are_put_before_texts_and_options():
    seen = []
    def encode(texts): seen.extend(texts); return letters(texts)
    a.from_encoder(encode, 'x', temperature=1., text_prefix='query: ', option_prefix='passage: ').predict(['hello'], DEPARTMENT)
    assert seen[0] == 'query: hello' and all(s.startswith('passage: ') for s in seen[1:]) and len(seen) == 4


# transformers

@pytest.fixture(scope='module')
def tiny(tmp_path_factory):
    "A tokenizer and a maker of tiny classifiers with given labels."
    torch = pytest.importorskip('torch'); transformers = pytest.importorskip('transformers')
    torch.set_num_threads(1)
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    words = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', *'0123456', 'text', 'refund', 'broken', 'this', 'example', 'is', '.', ':', 'billing', 'technical', 'other']
    t = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token='[UNK]'))
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.post_processor = processors.TemplateProcessing('[CLS] $A [SEP]', '[CLS] $A [SEP] $B:1 [SEP]:1', [('[CLS]', 2), ('[SEP]', 3)])
    tok = transformers.PreTrainedTokenizerFast(tokenizer_object=t, pad_token='[PAD]', unk_token='[UNK]', cls_token='[CLS]', sep_token='[SEP]', model_max_length=32)
    def make(task, labels, seed=0):
        torch.manual_seed(seed)
        config = transformers.BertConfig(vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, max_position_embeddings=32, num_labels=len(labels), id2label=dict(enumerate(labels)), label2id={l: i for i, l in enumerate(labels)}, initializer_range=.5)
        return transformers.pipeline(task, model=transformers.BertForSequenceClassification(config).eval(), tokenizer=tok, device='cpu')
    return make

def logits(pipe, *texts):
    import torch
    with torch.no_grad(): return pipe.model(**pipe.tokenizer(*texts, return_tensors='pt')).logits[0].double().numpy()

def test_text_classification_against_the_model_itself(home, tiny):
    pipe = tiny('text-classification', ['other', 'billing', 'technical'])
    s = a.from_pipeline(pipe, 'cls', name='Tiny', exposure='none')
    texts = ['refund', 'broken text', '', 'text ' * 90]
    p = s.predict(texts, DEPARTMENT)
    for row, t in zip(p[:3], texts):
        e = np.exp(logits(pipe, t)); e /= e.sum()
        assert np.allclose(row, e[[1, 2, 0]], atol=1e-5)
    assert np.allclose(p.sum(axis=1), 1, atol=1e-5)
    evaluate(s, 'mix_test', home/'out')
    assert len(frozen('cls', 'mix_test', home/'out')) == 60
    with pytest.raises(UnsupportedQuestion): s.predict(['x'], SEVEN)

def test_labels_that_stand_for_options(tiny):
    pipe = tiny('text-classification', [f'LABEL_{i}' for i in range(5)])
    to = dict(LABEL_0='billing', LABEL_1='other', LABEL_2='other', LABEL_3='technical', LABEL_4='other')
    p = a.from_pipeline(pipe, 'cls', to).predict(['refund'], DEPARTMENT)[0]
    e = np.exp(logits(pipe, 'refund')); e /= e.sum()
    assert np.allclose(p, [e[0], e[3], e[1] + e[2] + e[4]], atol=1e-5)
    with pytest.raises(DataError, match='LABEL_'): a.from_pipeline(pipe, 'cls').predict(['refund'], DEPARTMENT)

def test_zero_shot_answers_any_question_in_its_own_order(tiny):
    pipe = tiny('zero-shot-classification', ['contradiction', 'neutral', 'entailment'])
    s = a.from_pipeline(pipe, 'nli')
    for q in (DEPARTMENT, SEVEN, LEVEL):
        p = s.predict(['refund', 'broken text'], q)
        for row, t in zip(p, ['refund', 'broken text']):
            e = np.exp([logits(pipe, t, f'This example is {o}.')[2] for o in a.option_texts(q)])
            assert np.allclose(row, e/e.sum(), atol=1e-5)
    assert s.predict([], DEPARTMENT).shape == (0, 3)
    with pytest.raises(UnsupportedQuestion): s.predict(['x'], Question('same', 'score', '', (('0', 'same'), ('1', 'same'))))

def test_pipelines_are_told_apart_by_their_weights_and_named_nowhere(tiny, tmp_path):
    one, again, two = (a.from_pipeline(tiny('text-classification', ['other', 'billing', 'technical'], seed), 'x') for seed in (0, 0, 1))
    assert one.card.version == again.card.version != two.card.version
    pipe = tiny('text-classification', ['other', 'billing', 'technical'])
    pipe.model.name_or_path = pipe.model.config._name_or_path = '/secret/place/of-my-model'
    assert 'secret' not in json.dumps(vars(a.from_pipeline(pipe, 'x').card))

def test_other_pipelines_are_refused():
    class Fill: task = 'fill-mask'
    with pytest.raises(DataError, match='fill-mask'): a.from_pipeline(Fill(), 'x')


# CLI: polyroute evaluate my_module:my_system with each

MODULES = {
    'function': 'from polyroute.adapters import from_function\ndef f(texts, question): return [{o: 1/3 for o in question.options} for _ in texts]\nmy_system = from_function(f, "mine")\n',
    'sklearn': 'from sklearn.feature_extraction.text import TfidfVectorizer\nfrom sklearn.linear_model import LogisticRegression\nfrom sklearn.pipeline import make_pipeline\nfrom polyroute.adapters import from_sklearn\nmy_system = from_sklearn(make_pipeline(TfidfVectorizer(analyzer="char"), LogisticRegression()).fit(["0", "1", "2"], ["billing", "technical", "other"]), "mine")\n',
    'encoder': 'from polyroute.adapters import from_encoder\nmy_system = from_encoder(lambda texts: [[t.count(c) for c in "abcdefg "] for t in texts], "mine", temperature=.1)\n',
    'pipeline': 'from polyroute.adapters import from_pipeline\nclass Pipe:\n    task = "zero-shot-classification"\n    def __call__(self, texts, candidate_labels, **kw): return [dict(labels=candidate_labels, scores=[.5, .3, .2]) for t in texts]\nmy_system = from_pipeline(Pipe(), "mine")\n'}

@pytest.mark.parametrize('kind', MODULES)
def test_evaluate_a_module_with_each(home, monkeypatch, kind):
    monkeypatch.chdir(home)
    monkeypatch.setattr(sys, 'path', list(sys.path))
    (home/f'my_{kind}.py').write_text(MODULES[kind])
    assert run('evaluate', f'my_{kind}:my_system', '--split', 'ml_test').strip() == f'my_{kind}:my_system ml_test: computed'
    assert len(frozen('mine', 'ml_test')) == 240 and read_card('mine').recipe['source']
