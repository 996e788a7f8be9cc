"Laya checkpoints as systems, against the library itself on tiny checkpoints."
import json, os, shutil, subprocess, sys
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from polyroute.encoders import about, checkpoint
from polyroute.items import DEPARTMENT, DataError, Dataset, Item, Question, load
from polyroute.laya import Laya, RoutedLaya, batches, head, laya_card, released_router, tiny_encoder
from polyroute.predictions import read_predictions
from polyroute.systems import UnsupportedQuestion, chunks, evaluate

torch = pytest.importorskip('torch')
laya = pytest.importorskip('laya')
torch.set_num_threads(1)

QUESTIONS = [DEPARTMENT, Question.from_json('urgency', {'type': 'score', 'instructions': 'How urgent?', 'criteria': ['not', 'soon', 'now']}),
             Question.from_json('refund', {'type': 'noul', 'instructions': 'Money back?'}),
             Question.from_json('settled', {'type': 'noul', 'instructions': 'Is it settled?', 'criteria': {'false': 'still open', 'true': 'done'}}),
             Question.from_json('mood', {'type': 'choice', 'instructions': 'الحالة؟', 'criteria': ['😀', 'غاضب', 'neutral [MASK]', 'நன்று']})]
STRANGE = ['', ' ', 'a', 'word '*600, 'نص من اليمين', 'e\u0301\u0323', '👨\u200d👩\u200d👧', 'one\u2028two', 'a [MASK] b [SEP] c', '\x00\x1f', '字'*500, 'x'*3000]


@pytest.fixture(scope='module')
def made(tmp_path_factory):
    "Two tiny checkpoints in a cache of their own."
    base, before = tmp_path_factory.mktemp('tiny'), os.environ.get('POLYROUTE_CACHE')
    os.environ['POLYROUTE_CACHE'] = str(base/'cache')
    texts = load('train').states[:400]
    try: return [checkpoint(tiny_encoder(base/f'encoder{n}', texts, seed=n)) for n in range(2)]
    finally: os.environ.pop('POLYROUTE_CACHE') if before is None else os.environ.update(POLYROUTE_CACHE=before)


@pytest.fixture(scope='module')
def agent(made): return laya.load(str(made[0]), device='cpu')


def theirs(agent, states, question, **kw):
    "The library's own answers, in the question's option order."
    answers = [r['answers'][question.name] for r in agent.predict_batch(list(states), {question.name: question.to_json()}, **kw)]
    return np.array([[1 - a['noul'], a['noul']] if question.type == 'noul' else [a['probabilities'][o] for o in question.options] for a in answers])


@pytest.mark.parametrize('question', QUESTIONS, ids=lambda q: q.name)
def test_the_answers_are_the_librarys(made, agent, question):
    states = load('ml_test').states[::30] + STRANGE
    ours = Laya(made[0], device='cpu', batch=5).predict(states, question)
    np.testing.assert_allclose(ours, theirs(agent, states, question), atol=6e-5)      # it rounds to four digits
    np.testing.assert_allclose(ours.sum(1), 1, atol=1e-12)
    assert len(np.unique(ours)) > len(ours)                                           # and these are not rounded


@given(st.lists(st.text(max_size=60).filter(lambda s: not any('\ud800' <= c <= '\udfff' for c in s)), min_size=1, max_size=6))
@settings(max_examples=20, deadline=None)
def test_any_text(agent, states):
    np.testing.assert_allclose(Laya('given', agent=agent).predict(states, DEPARTMENT), theirs(agent, states, DEPARTMENT), atol=6e-5)


@pytest.mark.parametrize('question', QUESTIONS, ids=lambda q: q.name)
def test_the_sequence_is_the_librarys_token_for_token(agent, question):
    from laya.common import build_sequence
    from laya.train import to_internal
    system, h = Laya('given', agent=agent), head(agent, question)
    for text, tokens in zip(STRANGE, system.tokens(STRANGE)):
        ids, markers, cut = build_sequence(agent.tok, text, to_internal(question.name, question.to_json()), agent.cfg['max_len'], agent.cfg['head_max_len'], return_truncation_stats=True)
        assert [*h.ids, *tokens[:h.room], agent.tok.sep_token_id] == ids and list(h.markers) == markers
        assert system.overflow([text], question)[0] == cut['state_tokens_dropped']


def test_cut_texts_are_counted_for_every_item(agent):
    system = Laya('given', agent=agent)
    usage = [r['usage']['state_tokens_dropped'] for r in agent.predict_batch(STRANGE, {'department': DEPARTMENT.to_json()})]
    system.predict(STRANGE, DEPARTMENT)
    system.predict(['short'], DEPARTMENT)
    assert system.dropped == usage + [0] and max(usage) > 0


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 9))
def test_batches_hold_everything_once_the_longest_first(lengths, size):
    got = batches(lengths, size)
    assert sorted(i for b in got for i in b) == list(range(len(lengths))) and all(len(b) <= size for b in got)
    flat = [lengths[i] for b in got for i in b]
    assert flat == sorted(flat, reverse=True)


def test_neither_batch_nor_order_matters(made):
    states = load('ml_test').states[:24]
    one = np.concatenate([Laya(made[0], device='cpu', batch=1).predict([s], DEPARTMENT) for s in states])
    for size in (3, 16, 100): np.testing.assert_allclose(Laya(made[0], device='cpu', batch=size).predict(states, DEPARTMENT), one, atol=1e-6)
    np.testing.assert_allclose(Laya(made[0], device='cpu').predict(states[::-1], DEPARTMENT)[::-1], one, atol=1e-6)


def test_the_options_order_is_the_questions(made):
    states = load('ml_test').states[:6]
    turned = Question('department', 'choice', DEPARTMENT.instructions, DEPARTMENT.criteria[::-1])
    a, b = (Laya(made[0], device='cpu').predict(states, q) for q in (DEPARTMENT, turned))
    np.testing.assert_allclose(b, theirs(laya.load(str(made[0]), device='cpu'), states, turned), atol=6e-5)
    assert np.abs(a - b[:, ::-1]).max() < .5 and not np.allclose(a, b)


def test_an_interrupted_evaluation_ends_in_the_same_bytes(made, tmp_path):
    data = Dataset('toy', [Item(f'i{n}', s, q, None) for n, s in enumerate(load('ml_test').states[:70]) for q in [QUESTIONS[n % 2]]], sha256='0'*64)
    class Dies(Laya):
        calls = 0
        def predict(self, states, question):
            self.calls += 1
            if self.calls == 2: raise KeyboardInterrupt
            return super().predict(states, question)
    card = laya_card('tiny', 'Tiny', 'A', 'A toy.', 'none', made[0])
    assert evaluate(Laya(made[0], card, device='cpu'), data, tmp_path/'a') == 'computed'
    with pytest.raises(KeyboardInterrupt): evaluate(Dies(made[0], card, device='cpu'), data, tmp_path/'b')
    again = Laya(made[0], card, device='cpu')
    assert evaluate(again, data, tmp_path/'b') == 'resumed' and len(again.dropped) == 70 - len(chunks(data)[0][1])
    file = 'systems/tiny/toy.jsonl'
    assert (tmp_path/'a'/file).read_bytes() == (tmp_path/'b'/file).read_bytes()
    assert len(read_predictions(tmp_path/'a'/file, data).probs) == 70


def test_a_new_process_gives_the_same(made):
    states = load('ml_test').states[:5]
    here = Laya(made[0], device='cpu', threads=1).predict(states, DEPARTMENT)
    code = f'from polyroute.laya import Laya\nfrom polyroute.items import DEPARTMENT\nimport json; print(json.dumps(Laya({str(made[0])!r}, device="cpu", threads=1).predict({states!r}, DEPARTMENT).tolist()))'
    got = subprocess.run([sys.executable, '-c', code], env={**os.environ, 'HF_HUB_OFFLINE': '1', 'OMP_NUM_THREADS': '1'}, capture_output=True, text=True, timeout=120)
    assert np.array_equal(json.loads(got.stdout.splitlines()[-1]), here), got.stderr


def test_threads_are_given_back(made):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        a = Laya(made[0], device='cpu', threads=1).predict(['x'], DEPARTMENT)
        assert torch.get_num_threads() == 2
        np.testing.assert_allclose(Laya(made[0], device='cpu').predict(['x'], DEPARTMENT), a, atol=1e-6)
    finally: torch.set_num_threads(before)


def test_bfloat16_is_near(made):
    states = load('ml_test').states[:8]
    a, b = (Laya(made[0], device='cpu', bf16=half).predict(states, DEPARTMENT) for half in (False, True))
    assert 0 < np.abs(a - b).max() < .03


@pytest.mark.parametrize('question, why', [
    (Question('q', 'choice', 'Which?', tuple((f'a long beginning that all the options share, then number {i}', '') for i in range(50))), 'only 1 are distinct'),
    (Question('q', 'choice', 'Which?', tuple((f'o{i}', '') for i in range(200))), 'distinct|leaves no room'),
    (Question('q', 'choice', ' ', (('a', ''), ('b', ''))), "'instructions' must not be empty")])
def test_questions_it_cannot_take_are_unsupported(made, agent, tmp_path, question, why):
    system = Laya(made[0], device='cpu')
    with pytest.raises(UnsupportedQuestion, match=why): system.predict(['x'], question)
    data = Dataset('toy', [Item('i', 'x', question, None)], sha256='0'*64)
    assert evaluate(system, data, tmp_path) == 'n/a'


def test_options_that_are_cut_but_distinct_are_answered(made, agent):
    q = Question('q', 'choice', 'Which?', tuple((w, 'the same description of some length behind each of them') for w in 'red blue green black white brown pink grey gold lime navy teal plum rust sand'.split()))
    assert head(agent, q).cut is not None and Laya(made[0], device='cpu').predict(['x'], q).shape == (1, 15)


def with_config(folder, source, **changes):
    "A copy of a checkpoint with another configuration."
    shutil.copytree(source, folder)
    cfg = json.loads((folder/'rl_agent_config.json').read_text())
    (folder/'rl_agent_config.json').write_text(json.dumps(cfg | changes))
    return folder


def test_temperatures_are_the_checkpoints(made, tmp_path):
    hot = with_config(tmp_path/'hot', made[0], temperature=[3., 1., 2.], temperature_by_options={'choice:3-5': 2.})
    for q, t in zip(QUESTIONS[:3], (2., 1., 2.)):
        calibrated, raw = (Laya(hot, device='cpu', calibrated=c) for c in (True, False))
        z = raw.logits(['Refund me'], q)
        np.testing.assert_allclose(calibrated.predict(['Refund me'], q), np.exp(z/t)/np.exp(z/t).sum(), atol=1e-9)
        np.testing.assert_allclose(calibrated.predict(['Refund me'], q), theirs(laya.load(str(hot), device='cpu'), ['Refund me'], q), atol=6e-5)
        np.testing.assert_allclose(raw.predict(['Refund me'], q), np.exp(z)/np.exp(z).sum(), atol=1e-9)


def test_a_checkpoint_that_does_not_fit_its_configuration(made, tmp_path):
    with pytest.raises(DataError, match='laya cannot load this checkpoint'): Laya(with_config(tmp_path/'layers', made[0], head_layers=3), device='cpu').agent
    with pytest.raises(DataError, match='must be a list of 3 floats'): Laya(with_config(tmp_path/'temp', made[0], temperature=[1.]), device='cpu').agent
    broken = with_config(tmp_path/'none', made[0])
    (broken/'rl_agent_config.json').unlink()
    with pytest.raises(DataError, match='it has no rl_agent_config.json'): Laya(broken, device='cpu').agent


def test_half_a_surrogate_pair_is_refused(agent):
    with pytest.raises(DataError, match='text 1 holds half of a surrogate pair'): Laya('given', agent=agent).predict(['a', '\ud83d'], DEPARTMENT)


def test_another_layout_of_the_options(made, tmp_path):
    "ModernBERT with the layout in which no option sees another: the library's answers, and the options' order does not matter."
    from transformers import ModernBertConfig, ModernBertModel, AutoTokenizer
    from polyroute.encoders import with_head, write_checkpoint
    tok = AutoTokenizer.from_pretrained(made[0]/'tokenizer')
    torch.manual_seed(0)
    enc = ModernBertModel(ModernBertConfig(vocab_size=len(tok), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, max_position_embeddings=256, pad_token_id=0, bos_token_id=2,
                                           eos_token_id=3, cls_token_id=2, sep_token_id=3)).eval()
    cfg = dict(encoder='tiny', head_layers=2, act_costs={}, max_len=256, head_max_len=128, temperature=[1.]*3, option_layout='parallel')
    folder = write_checkpoint(tmp_path/'modern', with_head(enc, tok), tok, cfg, {})
    states, system = load('ml_test').states[:5], Laya(folder, device='cpu', batch=2)
    p = system.predict(states, DEPARTMENT)
    np.testing.assert_allclose(p, theirs(laya.load(str(folder), device='cpu'), states, DEPARTMENT), atol=6e-5)
    turned = Question('department', 'choice', DEPARTMENT.instructions, DEPARTMENT.criteria[::-1])
    np.testing.assert_allclose(system.predict(states, turned)[:, ::-1], p, atol=1e-5)


def test_cards(made):
    a, b = (laya_card('x', 'X', 'C', 'x', 'x', m, recipe=dict(epochs=1)) for m in made)
    assert a.recipe['checkpoint']['sha256'] == about(made[0])['sha256'] and a.version != b.version
    assert laya_card('x', 'X', 'C', 'x', 'x', made[0], calibrated=False, recipe=dict(epochs=1)).version != a.version
    assert laya_card('x', 'X', 'A', 'x', 'x', 'owner/name', revision='abc').recipe['checkpoint'] == dict(encoder='owner/name', revision='abc')


# --- the router

TEXTS = ['I was charged twice, please refund me now', 'Ich wurde doppelt belastet, bitte erstatten Sie mir den Betrag', 'मेरा पैसा वापस करो', '12345', 'The app crashes when I open it', '']


def test_the_routed_system_is_the_librarys_router(made):
    models = dict(english=made[1], multilingual=made[0])
    system, router = RoutedLaya(models, device='cpu'), laya.Router(models={k: str(v) for k, v in models.items()}, device='cpu')
    p = system.predict(TEXTS, DEPARTMENT)
    results = router.predict_batch([dict(state=s, questions={'department': DEPARTMENT.to_json()}) for s in TEXTS])
    np.testing.assert_allclose(p, [[r['answers']['department']['probabilities'][o] for o in DEPARTMENT.options] for r in results], atol=6e-5)
    assert [r.model for r in system.routes] == [r['routing']['model'] for r in results] and len({r.model for r in system.routes}) == 2
    assert [r.reason for r in system.routes] == [r['routing']['reason'] for r in results]
    system.predict(['word '*600], QUESTIONS[1])
    assert len(system.routes) == len(system.dropped) == 7 and system.dropped[:6] == [0]*6 and system.dropped[6] > 0


def test_routing_needs_no_weights():
    code = 'import sys; from polyroute.laya import released_router; print(released_router().route(["Please refund me, I was charged twice"])[0].model, "torch" in sys.modules)'
    got = subprocess.run([sys.executable, '-c', code], env={**os.environ, 'HF_HUB_OFFLINE': '1'}, capture_output=True, text=True, timeout=120)
    assert got.stdout.split() == ['english', 'False'], got.stderr


def test_the_released_checkpoints_without_a_network(tmp_path):
    code = '''
from polyroute.laya import released_multilingual
from polyroute.items import DEPARTMENT
try: released_multilingual().predict(['x'], DEPARTMENT)
except ValueError as e: print(type(e).__name__, e)'''
    got = subprocess.run([sys.executable, '-c', code], env={**os.environ, 'HF_HUB_OFFLINE': '1', 'HF_HOME': str(tmp_path)}, capture_output=True, text=True, timeout=120)
    assert got.stdout.startswith('DataError convaiinnovations/laya-multilingual could not be had from the hub'), got.stderr


def test_a_model_without_a_checkpoint_is_named(made):
    with pytest.raises(DataError, match="sends text to 'english', but there are checkpoints for multilingual only"): RoutedLaya(dict(multilingual=made[0]), device='cpu').predict(TEXTS[:1], DEPARTMENT)
    assert set(released_router().models) == {'english', 'multilingual'}
