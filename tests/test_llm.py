"Chat models: answers read strictly, log-probabilities against an exact model of tokens, and an endpoint that misbehaves."
import itertools, json, math, os
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st
from conftest import even, fast, toy_data, toy_items, tree
from openai_server import Server
from polyroute.answers import FORMS, blind_prompt, options_block, read_array, read_keys, read_logprobs, read_option, read_stated, single_prompt
from polyroute.items import DEPARTMENT, DataError, Dataset, Item, Question, load, write_jsonl
from polyroute.predictions import read_predictions
from polyroute.responses import Failure, Generator, Prompt, read_responses
from polyroute.systems import EXPOSURE, System, UnsupportedQuestion, read_card, training_set
from polyroute.wire import Limits

openai = pytest.importorskip('openai')
from polyroute.llm import LADDER, MODES, Chat, examples, find_mode, from_settings, generate, read_completion, turns
from polyroute.systemone import run

QUICK = Limits(concurrency=8, backoff=.005, timeout=5, tries=3)
URGENCY = Question.from_json('urgency', {'type': 'score', 'instructions': 'How urgent?', 'criteria': ['not', 'soon', 'now']})
REFUND = Question.from_json('refund', {'type': 'noul', 'instructions': 'Money back?'})
ODD = Question.from_json('odd', {'type': 'choice', 'instructions': '?', 'criteria': {'no': 'a', 'not sure': 'b', 'नहीं': 'c', 'No "way"': 'd'}})
QUESTIONS = [DEPARTMENT, URGENCY, REFUND, ODD]


# Reading

@given(st.sampled_from(QUESTIONS), st.data())
@fast
def test_a_key_in_any_wrapping_is_read_and_nothing_else(q, data):
    i = data.draw(st.integers(0, len(q.options) - 1)); o = q.options[i]
    for wrapped in (o, f' {o}\n', f'"{o}"', f'**{o}**', f'`{o}`.', json.dumps({'answer': q.expected(o)}), json.dumps([o], ensure_ascii=False), f'```json\n{json.dumps(o)}\n```', f'<think>{q.options[0]}</think>{o}'):
        assert read_option(wrapped, q.options) == i, wrapped
    for no in ('', f'not {o}, no', f'{o} or {q.options[i - 1]}', f'{o}x', json.dumps({'a': o, 'b': o}), '{"answer": null}', '[]', '{' * 500): assert read_option(no, q.options) is None, no


@given(st.lists(st.integers(0, 100), min_size=3, max_size=3), st.booleans(), st.permutations(DEPARTMENT.options))
@fast
def test_stated_probabilities_are_read_or_not(weights, percent, order):
    by = dict(zip(DEPARTMENT.options, (w if percent else w/100 for w in weights)))
    got = read_stated('Gladly:\n```json\n' + json.dumps({o: by[o] for o in order}) + '\n```', DEPARTMENT.options)
    total = sum(weights)
    if 98 <= total <= 102: np.testing.assert_allclose(got, np.array(weights)/total)
    elif not (percent and .98 <= total <= 1.02): assert got is None


def test_contradicting_objects_are_not_chosen_between():
    a, b = '{"billing": 1, "technical": 0, "other": 0}', '{"billing": 0, "technical": 1, "other": 0}'
    assert read_stated(f'First {a}, no: {b}', DEPARTMENT.options) is None and read_stated(f'{a} {a}', DEPARTMENT.options) is not None
    assert read_stated('{'*5000, DEPARTMENT.options) is None


@pytest.mark.parametrize('q', QUESTIONS, ids=lambda q: q.name)
def test_prompts_carry_the_question_unchanged(q):
    text = 'Ignore this. "quoted"\n1. "billing"'
    for p in (single_prompt(q, text, 'key'), single_prompt(q, text, 'letter'), single_prompt(q, text, 'stated'), blind_prompt(q, [text, 'b'])):
        assert q.instructions in p and json.dumps(text, ensure_ascii=False) in p and text not in p
        at = [p.index(f'{o}: {d}' if d else o) for o, d in q.criteria]
        assert at == sorted(at) or q is ODD
    assert options_block(q, True).split('\n')[1].startswith('B. ' + q.options[1])


# Log-probabilities against a model whose every token is known

class Speller:
    "Writes one of some words, cut into random pieces, with known probabilities; whatever is asked, all alternatives are listed."
    def __init__(self, words, probs, cuts, noise=0.): self.words, self.cuts, self.noise, self.p = words, cuts, noise, dict(zip(words, probs))
    def pieces(self, w): return [w.encode()[a:b] for a, b in itertools.pairwise([0, *self.cuts[w], len(w.encode())])]
    def next(self, said):
        "Probability of every next piece, after some pieces."
        live = {w: p for w, p in self.p.items() if self.pieces(w)[:len(said)] == said}
        total, out = sum(live.values()), {}
        for w, p in live.items():
            rest = self.pieces(w)[len(said):]
            out[rest[0] if rest else b''] = out.get(rest[0] if rest else b'', 0) + p/total
        return out
    def content(self, write):
        said, out = [], []
        for piece in [*self.pieces(write), b'']:
            alts = self.next(said)
            tok = lambda b, p: dict(token=b.decode('utf-8', 'replace') if b else '<|end|>', bytes=list(b or b'\n'), logprob=math.log(p))
            out.append(tok(piece, alts[piece]) | dict(top_logprobs=[tok(b, p) for b, p in alts.items()]))
            said.append(piece)
        return out


@given(st.data())
@fast
def test_the_first_token_and_the_length_do_not_matter(data):
    words = data.draw(st.sampled_from([('billing', 'technical', 'other'), ('bill', 'billing', 'technical'), ('no', 'not sure', 'नहीं'), ('a', 'extraordinarily long name', 'b')]))
    probs = np.array(data.draw(st.lists(st.floats(.02, 1), min_size=3, max_size=3)))
    probs /= probs.sum()
    cuts = {w: sorted(data.draw(st.sets(st.integers(1, max(1, len(w.encode()) - 1)), max_size=3)) - {len(w.encode())}) for w in words}
    m, write = Speller(words, probs, cuts), data.draw(st.sampled_from(words))
    got = read_logprobs(m.content(write), words, coverage=0)
    if got.probs is None: return
    # what may become several options in a direction that the model did not go is left out: no option gets more than it has
    if (got.probs > 0).all() and got.covered > 1 - 1e-9: np.testing.assert_allclose(got.probs, probs, atol=1e-9)
    i = words.index(write)
    assert got.probs[i] >= probs[i] - 1e-9                                  # the way that the model went is followed to its end
    others = got.probs[[j for j in range(3) if j != i]]*got.covered
    assert (others <= probs[[j for j in range(3) if j != i]] + (1 - got.covered) + 1e-9).all()
    shares_no_piece = len({m.pieces(w)[0] for w in words}) == 3 and not any(a != b and b.encode().startswith(m.pieces(a)[0]) for a in words for b in words)
    if shares_no_piece: np.testing.assert_allclose(got.probs, probs, atol=1e-9)


def flat(alts, sampled=0): return [dict(token=alts[sampled][0], logprob=math.log(alts[sampled][1]), top_logprobs=[dict(token=t, logprob=math.log(p)) for t, p in alts])]

def test_every_way_to_begin_an_option_is_added_up():
    got = read_logprobs(flat([('billing', .4), (' billing', .1), ('Billing', .2), ('"bill', .05), ('tech', .15), ('the', .1)]), DEPARTMENT.options, coverage=.8)
    np.testing.assert_allclose(got.probs, np.array([.75, .15, .05])/.95, atol=1e-9)       # `other` is not listed: no more than the least that is

def test_letters_are_not_the_beginnings_of_words():
    got = read_logprobs(flat([('A', .7), (' B', .2), ('Answer', .05), ('b', .03), ('A.', .02)]), 'AB', exact=True)
    np.testing.assert_allclose(got.probs, np.array([.72, .2])/.92)
    assert read_logprobs(flat([('Answer', .9), ('A', .1)]), 'AB', exact=True).probs is None

def test_the_same_token_listed_twice_counts_twice():
    np.testing.assert_allclose(read_logprobs(flat([('A', .5), ('A', .2), ('B', .3)]), 'AB', exact=True).probs, [.7, .3])

def test_an_option_that_is_not_listed_gets_no_more_than_the_least_that_is():
    got = read_logprobs(flat([('A', .96), ('B', .01)]), 'ABC', exact=True)
    assert got.probs[2] == pytest.approx(.01/.98) and got.covered == pytest.approx(.97)

@pytest.mark.parametrize('content, why', [([], 'no log-prob'), (flat([('Well', .6), ('A', .4)]), 'only 0.40'), (flat([('A', .5)]), 'only 0.50')])
def test_too_little_on_the_options_is_unread(content, why): assert read_logprobs(content, 'AB', exact=True).probs is None and why in read_logprobs(content, 'AB', exact=True).why


# Examples

@pytest.mark.parametrize('k', [1, 7])
def test_examples_are_training_rows_evenly_over_the_options(k):
    got, rows = examples(DEPARTMENT, k, 'train_ml'), {(i.state, i.gold) for i in training_set('train_ml') if i.question == DEPARTMENT}
    assert len(set(got)) == k and set(got) <= rows
    n = [sum(g == o for _, g in got) for o in DEPARTMENT.options]
    assert max(n) - min(n) <= 1
    assert examples(DEPARTMENT, k, 'train_ml', seed=1) != got == examples(DEPARTMENT, k, 'train_ml')

@pytest.mark.parametrize('split', ['ml_test', 'mix_test', 'boundary', 'nonsense'])
def test_no_example_is_a_test_item(split):
    with pytest.raises(DataError, match='is no training set'): examples(DEPARTMENT, 2, split)

def test_a_question_without_training_rows_has_no_examples():
    with pytest.raises(UnsupportedQuestion, match='0 rows'): examples(ODD, 1)
    assert examples(ODD, 0) == []


# An endpoint

def texts_in(body):
    "The texts of a request, and its last line."
    prompt = body['messages'][-1]['content']
    return [json.loads(l.split('. ', 1)[-1] if l[:1].isdigit() else l) for l in prompt.split('\n') if l.startswith('"') or l.split('. ', 1)[-1].startswith('"')], prompt.rsplit('\n\n', 1)[-1]

class Model(Server):
    "A chat model that thinks what conftest.even says; `says(body, text)` overrides what it writes."
    def __init__(self, question=DEPARTMENT, says=lambda body, said: said, **kw):
        self.question, self.says = question, says
        super().__init__(answer=self.speak, **kw)
    def mind(self, t): return even([t], self.question)[0]
    def speak(self, body):
        texts, last = texts_in(body)
        minds, options = [self.mind(t) for t in texts], self.question.options
        if 'JSON array' in last: return json.dumps([options[m.argmax()] for m in minds])
        if last == FORMS['stated']: return json.dumps(dict(zip(options, minds[0].tolist())))
        return 'ABCDEFGH'[minds[0].argmax()] if last == FORMS['letter'] else options[minds[0].argmax()] if last == FORMS['key'] else f'You said: {body["messages"][-1]["content"]}'
    def complete(self, key, body, text=None):
        out = json.loads(json.dumps(super().complete(key, body, text)))
        choice = out['choices'][0]
        choice['message']['content'] = self.says(body, choice['message']['content'])
        if body.get('logprobs'):
            names = 'ABCDEFGH' if body['messages'][-1]['content'].endswith(FORMS['letter']) else self.question.options
            alts = [dict(token=n, logprob=math.log(p)) for n, p in zip(names, self.mind(texts_in(body)[0][0]))]
            choice['logprobs'] = {'content': [max(alts, key=lambda a: a['logprob']) | dict(top_logprobs=alts)]}
        return out

@pytest.fixture(autouse=True)
def key(monkeypatch): monkeypatch.setenv('CHAT_KEY', 'sk-very-secret')

def chat(server, **kw): return Chat(server.url, **dict(model='secret-model-7b', slug='chat', key_env='CHAT_KEY', identity='chat', limits=QUICK) | kw)
def labels(p): return np.eye(p.shape[1])[p.argmax(1)]


def test_the_protocols():
    with Model() as s, chat(s) as c: assert isinstance(c, System) and isinstance(c, Generator)


@pytest.mark.parametrize('mode, letters', [('logprobs', True), ('logprobs', False), ('stated', True), ('label', True), ('batch', True)])
@pytest.mark.parametrize('q', QUESTIONS[:3], ids=lambda q: q.name)
def test_what_the_model_thinks_is_what_is_predicted(q, mode, letters):
    states = ['a', 'b "c"', 'نص\u202e', '1. "billing"', 'x\u2028y', 'a', 'long '*300]
    with Model(q) as s, chat(s, mode=mode, letters=letters, batch=3) as c:
        got, mind = c.predict(states, q), even(states, q)
        np.testing.assert_allclose(got, labels(mind) if c.labels_only else mind, atol=1e-5)
        assert len(s.bodies) == (2 if mode == 'batch' else 6) and s.auth == {'Bearer sk-very-secret'}
        assert all(b['temperature'] == 0 and ('logprobs' in b) == (mode == 'logprobs') and ('response_format' in b) == (mode == 'stated') for b in s.bodies)
        c.predict(states[::-1], q)
        assert len(s.bodies) == (2 if mode == 'batch' else 6)


def test_examples_go_before_the_question():
    with Model() as s, chat(s, mode='label', shots=3, shots_from='train_free') as c:
        c.predict(['a'], DEPARTMENT)
        said = s.bodies[0]['messages']
        assert [m['role'] for m in said] == ['user', 'assistant']*3 + ['user'] and [m['content'] for m in said[1::2]] == [g for _, g in examples(DEPARTMENT, 3, 'train_free')]
        assert (c.card.training, c.card.training_rows, c.card.exposure, c.card.track) == ('train_free', 3, EXPOSURE['train_free'], 'ref')
        with pytest.raises(UnsupportedQuestion): c.predict(['a'], ODD)
    with Model() as s, chat(s, mode='label') as c: assert c.card.training is None and 'none' in c.card.exposure


def test_the_batch_is_the_blind_request(tmp_path):
    data = toy_data(tmp_path/'toy.jsonl', 25)
    with Model() as s, chat(s, mode='batch', batch=10) as c:
        assert run(c, data, tmp_path/'o') == 'computed' and sorted(len(texts_in(b)[0]) for b in s.bodies) == [5, 10, 10]
        asked = [t for b in s.bodies for t in texts_in(b)[0]]
        assert sorted(asked) == sorted(data.states) and asked != data.states          # neighbours say nothing about each other
        assert all(b['messages'][0]['content'] == blind_prompt(DEPARTMENT, texts_in(b)[0]) for b in s.bodies)
        p = read_predictions(tmp_path/'o'/'systems'/'chat'/'toy.jsonl', data)
        np.testing.assert_array_equal(p.probs, labels(even(data.states, DEPARTMENT)))
        assert p.header.labels_only and sum(r['input_tokens'] for r in c.usage(data)) == pytest.approx(150)


@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('noise', ['', 'I cannot say.', 'billing or technical', '{"billing": 2}', '[]', '```', '</think>', 'D'])
def test_what_cannot_be_read_is_counted_and_never_guessed(mode, noise, tmp_path):
    data = toy_data(tmp_path/'toy.jsonl', 12)
    bad = {data.states[3], data.states[8]}
    says = lambda body, said: noise if bad & set(texts_in(body)[0]) else said
    with Model(says=says) as s, chat(s, mode=mode, batch=1) as c:
        with pytest.raises(DataError, match='2 of 12 answers cannot be read.*nothing is guessed'): run(c, data, tmp_path/'o')
        assert not (tmp_path/'o'/'systems'/'chat'/'toy.jsonl').exists()
    with Model(says=says) as s, chat(s, mode=mode, batch=1, unread='even') as c:
        assert run(c, data, tmp_path/'o') == 'computed'
        p = read_predictions(tmp_path/'o'/'systems'/'chat'/'toy.jsonl', data)
        is_even = np.isclose(p.probs, 1/3, atol=1e-5).all(1)
        assert [data[i].state in bad for i in range(12)] == is_even.tolist()
        usage = json.loads((tmp_path/'o'/'systems'/'chat'/'usage.json').read_text())['toy']
        assert usage['unread'] == 2 and usage['mode'] == mode and usage['unread_scored_right'] == p.hit[is_even].sum()


def test_one_unreadable_key_of_a_batch_is_one_unread_text():
    def says(body, said): keys = json.loads(said); keys[1] = 'tehcnical'; return json.dumps(keys)
    with Model(says=says) as s, chat(s, mode='batch', unread='even') as c:
        assert np.isclose(c.predict(list('abcde'), DEPARTMENT), 1/3).all(1).sum() == 1
    with Model(says=lambda body, said: json.dumps(json.loads(said)[:-1])) as s, chat(s, mode='batch', unread='even') as c:
        assert np.isclose(c.predict(list('abcde'), DEPARTMENT), 1/3).all(1).sum() == 5     # which key belongs to which text is unknown


def test_an_unreadable_answer_is_asked_for_again_and_each_time_is_paid():
    seen = {}
    def says(body, said):
        t = texts_in(body)[0][0]; seen[t] = seen.get(t, 0) + 1
        return said if seen[t] > 2 or t == 'a' else 'Hm.'
    with Model(says=says) as s, chat(s, mode='label', asks=3) as c:
        np.testing.assert_array_equal(c.predict(['a', 'b'], DEPARTMENT), labels(even(['a', 'b'], DEPARTMENT)))
        assert seen == {'a': 1, 'b': 3}


def test_an_endpoint_that_ignores_the_wish_for_logprobs_is_unread():
    class Plain(Model):
        def complete(self, key, body, text=None): return super().complete(key, {k: v for k, v in body.items() if k != 'logprobs'}, text)
    with Plain() as s, chat(s) as c:
        with pytest.raises(DataError, match='no log-probabilities came back'): c.predict(['a'], DEPARTMENT)
    with Plain() as s: assert find_mode(lambda **how: chat(s, **how)) == dict(mode='stated')


@pytest.mark.parametrize('refuses, reads, mode', [(set(), True, LADDER[0]), ({'logprobs'}, True, LADDER[1]), ({'logprobs', 'response_format'}, True, LADDER[2]), (set(), False, LADDER[3])])
def test_the_most_that_an_endpoint_gives_is_found(refuses, reads, mode):
    says = lambda body, said: said if reads or texts_in(body)[1] == FORMS['key'] else 'Hm.'
    with Model(says=says, fault=lambda body, n: '400' if refuses & set(body) else None) as s: assert find_mode(lambda **how: chat(s, **how)) == mode


def test_an_endpoint_that_says_nothing_useful_has_no_mode():
    with Model(says=lambda body, said: 'Hm.') as s:
        with pytest.raises(DataError, match="not even a label; it answered 'Hm.'"): find_mode(lambda **how: chat(s, **how))
    with Model(fault=lambda body, n: '401') as s:
        with pytest.raises(DataError, match='401: the key'): find_mode(lambda **how: chat(s, **how))


@pytest.mark.parametrize('fault', ['429:0.02', '500', 'cut', 'cut-chunk', 'not-json', 'no-choices'])
def test_one_bad_moment_is_survived(fault):
    with Model(fault=lambda body, n: fault if n == 0 else None) as s, chat(s, mode='label') as c:
        np.testing.assert_array_equal(c.predict(['a', 'b'], DEPARTMENT), labels(even(['a', 'b'], DEPARTMENT)))
        assert len(s.bodies) == 4

@pytest.mark.parametrize('fault', ['401', '500', '400', 'not-json'])
def test_a_fault_that_stays_ends_the_run_and_shows_no_secret(fault):
    with Model(fault=lambda body, n: fault if texts_in(body)[0] == ['bad'] else None) as s, chat(s, mode='label') as c:
        with pytest.raises(DataError, match='of 3 texts have no answer') as e: c.predict(['a', 'b', 'bad'], DEPARTMENT)
        assert 'secret' not in str(e.value)


def test_a_killed_run_asks_nothing_twice(tmp_path):
    data = toy_data(tmp_path/'toy.jsonl', 70)
    with Model() as s:
        with chat(s, mode='batch', batch=7, journal=tmp_path/'calls.jsonl') as c: c.prefetch(data)
        with chat(s, mode='batch', batch=7, journal=tmp_path/'calls.jsonl') as c:           # nothing of the first run but its journal
            assert run(c, data, tmp_path/'o') == 'computed' and len(s.bodies) == 10
        with chat(s, mode='batch', batch=7) as c: assert run(c, data, tmp_path/'o') == 'kept' and len(s.bodies) == 10


def test_no_secret_lands_anywhere(tmp_path, caplog):
    caplog.set_level('DEBUG')
    data = toy_data(tmp_path/'toy.jsonl', 20)
    with Model(fault=lambda body, n: '429:0' if n == 0 else None) as s, chat(s, journal=tmp_path/'o'/'systems'/'chat'/'calls.jsonl', price=(1, 2)) as c:
        run(c, data, tmp_path/'o')
        generate(c, [Prompt('p', ({'role': 'user', 'content': 'hello'},))], 'sum', 'pingpong', root=tmp_path/'o')
    files = tree(tmp_path/'o')
    assert len(files) == 8 and not any(b'secret' in v for v in files.values())
    assert not any('secret' in r.getMessage() for r in caplog.records)
    assert json.loads(files['systems/chat/usage.json'])['toy']['cost'] == pytest.approx(20*(50 + 2*50)/1e6)


def test_the_version_follows_everything_that_decides():
    with Model() as s:
        kinds = [{}, dict(mode='stated'), dict(mode='stated', structured=False), dict(mode='label'), dict(mode='batch'), dict(mode='batch', batch=5), dict(letters=False), dict(shots=2), dict(shots=2, shots_seed=1), dict(shots=2, shots_from='train_free'),
                 dict(model='m2'), dict(options={'temperature': 1}), dict(identity='other'), dict(asks=2), dict(unread='even')]
        versions = [chat(s, **k).card.version for k in kinds]
        assert len(set(versions)) == len(kinds) and chat(s, limits=Limits(), price=(3, 4)).card.version == versions[0]


@pytest.mark.parametrize('kw, why', [(dict(mode='guess'), '"mode" is one of'), (dict(unread='zero'), '"unread" is one of'), (dict(batch=0), '"batch"'), (dict(asks=0), '"asks"'), (dict(model=''), 'name of a model'), (dict(options={'n': 3}), 'must not set n')])
def test_bad_settings(kw, why):
    with pytest.raises(DataError, match=why): Chat(**dict(base_url='http://localhost:1/v1', model='m') | kw)

def test_more_options_than_letters():
    many = Question.from_json('many', {'type': 'choice', 'instructions': '?', 'criteria': [f'o{n}' for n in range(30)]})
    with Model() as s, chat(s) as c:
        with pytest.raises(UnsupportedQuestion, match='letters=False'): c.predict(['a'], many)


# Generating

def prompts(n): return [Prompt(f'p{i}', ({'role': 'system', 'content': 'Be short.'}, {'role': 'user', 'content': f'tell {i}'})) for i in range(n)]

def test_responses_are_frozen_with_what_they_took(tmp_path):
    says = lambda body, said: {'tell 1': '', 'tell 2': '<think>hm</think> two ', 'tell 3': '<think>hm</think>'}.get(body['messages'][-1]['content'], said)
    with Model(says=says, fault=lambda body, n: '400' if body['messages'][-1]['content'] == 'tell 4' else '500' if n == 0 else None) as s, chat(s, options={'max_tokens': 50}) as c:
        assert generate(c, prompts(50), 'sum', 'pingpong', 'ask-english', 'd'*64, tmp_path) == 'computed'
        assert generate(c, prompts(50), 'sum', 'pingpong', 'ask-english', 'd'*64, tmp_path) == 'kept' and len(s.bodies) == 99
        assert all(b['max_tokens'] == 50 and b['messages'][0]['role'] == 'system' for b in s.bodies)
    r = read_responses('chat', 'sum', 'pingpong', 'ask-english', tmp_path, prompts(50), 'd'*64)
    assert (r.texts['p0'], r.texts['p2']) == ('You said: tell 0', 'two') and {i: w.split(' ')[0] for i, w in r.failures.items()} == {'p1': 'the', 'p3': 'the', 'p4': '400'}
    usage = json.loads((tmp_path/'systems'/'chat'/'usage.json').read_text())
    assert usage['pingpong/sum.ask-english.responses']['items'] == 49 and 'secret' not in json.dumps(r.header)

def test_an_endpoint_that_is_down_is_no_failure_of_the_model(tmp_path):
    with Model(fault=lambda body, n: '500' if body['messages'][-1]['content'] == 'tell 7' else None) as s, chat(s) as c:
        with pytest.raises(DataError, match='1 of 40 prompts have no answer'): generate(c, prompts(40), 'sum', 'pingpong', root=tmp_path)
    assert read_responses('chat', 'sum', 'pingpong', root=tmp_path) is None

def test_a_filtered_answer_is_a_failure_and_a_cut_one_is_counted(tmp_path):
    class Cutting(Model):
        def complete(self, key, body, text=None):
            out = super().complete(key, body, text)
            out['choices'][0]['finish_reason'] = {'tell 0': 'content_filter', 'tell 1': 'length'}.get(body['messages'][-1]['content'], 'stop')
            return out
    with Cutting() as s, chat(s) as c: generate(c, prompts(3), 'sum', 'pingpong', root=tmp_path)
    r = read_responses('chat', 'sum', 'pingpong', root=tmp_path)
    assert r.failures == {'p0': 'declined'} and 'p1' in r.texts
    assert json.loads((tmp_path/'systems'/'chat'/'usage.json').read_text())['pingpong/sum.responses']['cut_off'] == 1


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=3), lambda x: st.lists(x, max_size=3) | st.dictionaries(st.sampled_from(['choices', 'message', 'content', 'logprobs', 'usage', 'token', 'finish_reason']), x, max_size=4), max_leaves=12))
@fast
def test_any_json_is_an_answer_or_a_fault(body):
    from polyroute.wire import Fault
    try: said, usage = read_completion(body)
    except Fault: return
    assert isinstance(said['text'], str) and isinstance(said['finish'], str)


# From settings

TOML = '''
kind = "chat"
base_url = "{url}"
model = "secret-model-7b"
key_env = "CHAT_KEY"
slug = "toml-chat"
mode = "auto"
identity = "chat"
[card]
name = "Public name"
what = "A toy."
licence = "mit"
[limits]
concurrency = 3
backoff = 0.005
'''

def test_a_system_from_a_file(tmp_path):
    from polyroute.llm import read_settings
    with Model() as s:
        (f := tmp_path/'my.toml').write_text(TOML.format(url=s.url))
        told = []
        with from_settings(read_settings(f), tell=told.append) as c:
            assert (c.card.slug, c.card.name, c.card.licence, c.mode, c.caller.limits.concurrency, told) == ('toml-chat', 'Public name', 'mit', 'logprobs', 3, ['mode: mode = "logprobs"'])
    f.write_text('kind = ')
    with pytest.raises(DataError, match='not a TOML file'): read_settings(f)

@pytest.mark.parametrize('change, words', [(dict(slug='My-Chat'), 'a-z, 0-9'), (dict(card=dict(track='Z')), 'track'), (dict(card=dict(colour='red')), 'colour'), (dict(limits=dict(concurrency=0)), '"concurrency"'), (dict(key_env='sk-secret'), 'not the key itself')], ids=str)
def test_settings_that_do_not_fit_are_named(change, words):
    with pytest.raises(DataError, match=words) as e: from_settings(dict(kind='chat', base_url='http://h', model='m', mode='label') | change)
    assert 'sk-secret' not in str(e.value)

@pytest.mark.parametrize('kind', ['ConnectTimeout', 'PoolTimeout', 'ConnectError'])
def test_a_host_that_does_not_answer_stops_the_run(kind):
    import httpx, openai
    def refuse(request): raise getattr(httpx, kind)('no')
    c = Chat('http://h', 'secret-model-7b', key_env='', limits=Limits(tries=1, backoff=0, concurrency=1))
    c.client = openai.OpenAI(api_key='none', base_url='http://h', max_retries=0, http_client=httpx.Client(transport=httpx.MockTransport(refuse)))
    with pytest.raises(DataError, match=f'not reached.*{kind}'): c.predict([str(n) for n in range(30)], DEPARTMENT)
    assert c.caller.tries == 1

def test_the_example_is_valid():
    import tomllib
    from polyroute.llm import EXAMPLE
    s = tomllib.loads(EXAMPLE) | dict(mode='label')
    with from_settings(s) as c: assert c.card.name == 'My chat model' and c.price == [.15, .6]


# CLI

@pytest.fixture
def cli():
    from polyroute.cli import main
    if 'base_url' not in {p.name for p in main.commands['evaluate'].params}: pytest.fail('the command has no options for systems behind a server')
    return lambda *args, code=0: _invoke(main, args, code)

def _invoke(main, args, code):
    r = CliRunner().invoke(main, [str(a) for a in args])
    assert not (r.exception and not isinstance(r.exception, SystemExit)), repr(r.exception)
    assert r.exit_code == code, r.output
    assert 'secret' not in r.output
    return r.output

def test_evaluate_a_chat_model(cli, home):
    with Model() as s:
        args = ['evaluate', 'chat', '--base-url', s.url, '--model', 'secret-model-7b', '--key-env', 'CHAT_KEY', '--slug', 'my-chat', '--mode', 'auto', '--split', 'mix_test', '--concurrency', 4]
        assert 'mode: mode = "logprobs"' in (out := cli(*args)) and 'my-chat mix_test: computed' in out
        asked = len(s.bodies)
        assert 'my-chat mix_test: kept' in cli(*args)
        assert len(s.bodies) == asked + 1                   # the mode is looked for again, nothing else
        assert 'computed' in cli(*args, '--fresh') and len(s.bodies) == 2*asked + 1
    shown = cli('usage', 'my-chat')
    assert 'mix_test' in shown and 'logprobs' in shown and json.loads(cli('usage', 'my-chat', '--json'))['mix_test']['items'] == 60
    assert not any(b'secret' in v for v in tree(home/'out').values())
    assert 'no recorded usage' in cli('usage', 'nobody', code=1)

def test_evaluate_from_a_file(cli, home):
    with Model() as s:
        (home/'my.toml').write_text(TOML.format(url=s.url))
        assert 'toml-chat mix_test: computed' in cli('evaluate', home/'my.toml', '--split', 'mix_test', '--mode', 'label')
    assert read_card('toml-chat', home/'out').name == 'Public name'

def test_evaluate_an_engine(cli, home):
    from systemone_server import Engine
    with Engine() as s:
        out = cli('evaluate', 'systemone', '--base-url', s.base, '--slug', 'my-engine', '--split', 'mix_test')
        assert 'my-engine mix_test: computed' in out and len(s.bodies) == len(set(load('mix_test').states))

@pytest.mark.parametrize('args, code, why', [(['systemone'], 2, 'needs --base-url'), (['tfidf-all', '--base-url', 'http://h'], 2, '--base-url is for the systems systemone and chat'), (['no.toml'], 1, 'no such file'),
                                             (['chat', '--base-url', 'http://h'], 1, 'name of a model'), (['chat', '--model', 'm', '--key-env', 'NOT_SET'], 1, 'NOT_SET')])
def test_wrong_settings_are_messages(cli, home, args, code, why): assert why in cli('evaluate', *args, code=code)
