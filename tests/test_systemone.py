"Engines behind POST /v1/systemone: the real server of laya, and one that misbehaves."
import json, os, signal, subprocess, sys, threading, time
from pathlib import Path
import numpy as np
import pytest
from hypothesis import given, strategies as st
from conftest import even, fast, toy_data, toy_items, tree
from polyroute.items import DEPARTMENT, DataError, Dataset, Item, Question, load
from polyroute.predictions import frozen, read_predictions
from polyroute.systems import UnsupportedQuestion, evaluate, read_card
from polyroute.wire import Call, Caller, Fault, Journal, Limits, digest, hide, item_usage, key_from, retry_after, status_fault, summary

httpx2 = pytest.importorskip('httpx2')
from polyroute.systemone import SystemOne, groups, read_answer, run
from systemone_server import Engine, decide

QUICK = Limits(concurrency=8, backoff=.005, timeout=5)
URGENCY = Question.from_json('urgency', {'type': 'score', 'instructions': 'How urgent?', 'criteria': ['not', 'soon', 'now']})
REFUND = Question.from_json('refund', {'type': 'noul', 'instructions': 'Money back?'})
MOOD = Question.from_json('mood', {'type': 'choice', 'instructions': 'الحالة؟', 'criteria': ['😀', 'غاضب', '"quoted"', '</script>']})
QUESTIONS = [DEPARTMENT, URGENCY, REFUND, MOOD]


def client(server, **kw): return SystemOne(server.base, **dict(model='secret-model-7b', slug='engine', key_env='ENGINE_KEY', limits=QUICK, identity='engine') | kw)
def expected(states, q): p = np.array([decide(s, q) for s in states]); return p / p.sum(1, keepdims=True)


@pytest.fixture(autouse=True)
def key(monkeypatch): monkeypatch.setenv('ENGINE_KEY', 'sk-very-secret')


# Reading answers

@given(st.lists(st.integers(0, 10_000), min_size=3, max_size=3).filter(any), st.permutations(range(3)), st.integers(0, 4))
@fast
def test_rounded_rows_are_read_in_the_questions_order(weights, order, digits):
    p = np.array(weights, float) / sum(weights)
    shown = {DEPARTMENT.options[i]: float(p.round(max(digits, 4))[i]) for i in order}
    got = read_answer({'type': 'choice', 'choice': 'other', 'confidence': .5, 'probabilities': shown}, DEPARTMENT)
    np.testing.assert_allclose(got, p, atol=2e-4)
    assert abs(got.sum() - 1) < 1e-12


@pytest.mark.parametrize('q', QUESTIONS, ids=lambda q: q.name)
def test_the_confidence_is_never_read(q):
    from systemone_server import answer_to
    a = answer_to('a text', q)
    lies = a | dict(confidence=1.0, answer_confidence=.99, x_jev_confidence=0., choice='nonsense', score=17)
    np.testing.assert_array_equal(read_answer(a, q), read_answer(lies, q))
    with pytest.raises(ValueError): read_answer(lies | {'probabilities': None, 'noul': None}, q)


@pytest.mark.parametrize('noul', [True, 'yes', -.1, 1.1, float('nan'), None])
def test_bad_nouls(noul):
    with pytest.raises(ValueError): read_answer({'type': 'noul', 'noul': noul}, REFUND)


@given(st.lists(st.tuples(st.sampled_from('abc'), st.sampled_from(QUESTIONS)), unique=True), st.integers(1, 3))
@fast
def test_calls_hold_every_pair_once(pairs, size):
    calls = groups(pairs, size)
    assert sorted((s, q.name) for s, qs in calls for q in qs) == sorted((s, q.name) for s, q in pairs)
    assert all(1 <= len(qs) <= size and len({q.name for q in qs}) == len(qs) for _, qs in calls)
    assert len(calls) == sum(-(-sum(p[0] == s for p in pairs)//size) for s in 'abc')


def test_two_questions_of_one_name_are_two_calls():
    other = Question('department', 'choice', 'Who?', DEPARTMENT.criteria)
    assert len(groups([('a', DEPARTMENT), ('a', other)], 9)) == 2


# A server that answers

@pytest.mark.parametrize('q', QUESTIONS, ids=lambda q: q.name)
def test_predictions_are_the_servers(q):
    states = ['', 'text', 'نص\u202e', 'a\u2028b', '👨\u200d👩\u200d👧', 'text', '<script>', 'x'*3000]
    with Engine() as s, client(s) as c:
        np.testing.assert_allclose(c.predict(states, q), expected(states, q), atol=1e-12)
        assert len(s.bodies) == len(set(states)) and s.auth == {'Bearer sk-very-secret'} and s.bodies[0]['model'] == 'secret-model-7b'
        c.predict(states[::-1], q)
        assert len(s.bodies) == len(set(states))                     # nothing is asked twice


def test_nothing_that_is_sent_is_logged(caplog):
    caplog.set_level('DEBUG')
    with Engine(fault=lambda body, n: '500' if n == 0 else None) as s, client(s) as c: c.predict(['a text'], DEPARTMENT)
    assert not any(w in r.getMessage() for r in caplog.records for w in ('secret', 'a text', '127.0.0.1'))


def test_without_key_and_model_neither_is_sent(monkeypatch):
    monkeypatch.delenv('ENGINE_KEY')
    with Engine() as s, client(s, model='', options={'lang': 'de'}) as c:
        c.predict(['a'], DEPARTMENT)
        assert s.auth == {None} and set(s.bodies[0]) == {'state', 'questions', 'lang'}


def test_several_questions_are_one_call(tmp_path):
    data = Dataset('toy', [Item(f'{t}-{q.name}', f'text {t}', q, None) for q in QUESTIONS for t in range(10)], sha256='0'*64)
    with Engine() as s, client(s, together=3) as c:
        assert run(c, data, tmp_path) == 'computed' and len(s.bodies) == 20 and {len(b['questions']) for b in s.bodies} == {1, 3}
        p = read_predictions(tmp_path/'systems'/'engine'/'toy.jsonl', data)
        for q, ix in data.by_question(): np.testing.assert_allclose(p.probs[ix][:, :len(q.options)], expected([data[i].state for i in ix], q), atol=1e-5)
        rows = c.usage(data)
        assert sum(r['input_tokens'] for r in rows) == pytest.approx(400) and len(rows) == 40 and all(r['ms'] > 0 for r in rows)
    assert json.loads((tmp_path/'systems'/'engine'/'usage.json').read_text())['toy']['output_tokens'] == dict(per_item=1, total=40, counted=40)


def test_a_question_that_spoils_its_call_spoils_no_other():
    bad = lambda body, n: '422' if 'refund' in body['questions'] else None
    with Engine(fault=bad) as s, client(s) as c:
        faults = c.ask([('a', q) for q in QUESTIONS])
        assert [q.name for _, q in faults] == ['refund'] and len(s.bodies) == 5
        assert c.predict(['a'], MOOD).shape == (1, 4)
        with pytest.raises(UnsupportedQuestion): c.predict(['a'], REFUND)


# A server that misbehaves

FAULTS = ['429:0.05', '429', '500', '503:0', 'cut', 'cut-chunk', 'not-json', 'no-choices', *(f'text:{w}' for w in 'names missing sum empty type label list'.split())]
@pytest.mark.parametrize('fault', FAULTS)
def test_one_bad_answer_is_asked_for_again(fault):
    with Engine(fault=lambda body, n: fault if n == 0 else None) as s, client(s) as c:
        np.testing.assert_allclose(c.predict(['a', 'b'], DEPARTMENT), expected(['a', 'b'], DEPARTMENT))
        assert len(s.bodies) == 4 and set(s.tries.values()) == {2}


@pytest.mark.parametrize('fault, why', [('text:names', "unknown option 'BILLING!'"), ('text:missing', 'has no probabilities'), ('text:sum', 'sum to 0.89'), ('not-json', 'not JSON'), ('no-choices', 'has no "answers"'),
                                        ('500', '500'), ('cut', 'no complete answer'), ('429:9999', '429')])
def test_an_answer_that_stays_bad_is_reported_and_the_others_are_kept(fault, why):
    with Engine(fault=lambda body, n: fault if body['state'] == 'bad' else None) as s, client(s, limits=Limits(tries=3, backoff=.005, longest_wait=2)) as c:
        with pytest.raises(DataError) as e: c.predict(['a', 'bad', 'b'], DEPARTMENT)
        assert why in str(e.value) and '1 of 3 texts have no answer' in str(e.value) and 'secret' not in str(e.value)
        asked = len(s.bodies)
        assert c.predict(['b', 'a'], DEPARTMENT).shape == (2, 3) and len(s.bodies) == asked
        assert sum(b['state'] == 'bad' for b in s.bodies) == (1 if fault == '429:9999' else 3)


def test_a_server_that_hangs_is_given_up_and_asked_again():
    with Engine(fault=lambda body, n: 'slow:3' if n == 0 else None) as s, client(s, limits=Limits(timeout=.3, backoff=.01)) as c:
        start = time.monotonic()
        np.testing.assert_allclose(c.predict(['a'], DEPARTMENT), expected(['a'], DEPARTMENT))
        assert time.monotonic() - start < 2.5 and len(s.bodies) == 2


def test_a_wait_that_is_asked_for_is_waited_by_all():
    with Engine(fault=lambda body, n: '429:0.6' if body['state'] == '0' and n == 0 else None) as s, client(s, limits=Limits(concurrency=2, backoff=.001)) as c:
        c.predict([str(i) for i in range(40)], DEPARTMENT)
        gaps = np.diff(sorted(s.times))
        assert gaps.max() > .4                                # nobody calls while the server asks for rest


@pytest.mark.parametrize('fault', ['401', '403', '404', '405'])
def test_a_wrong_key_stops_the_run_at_once(fault):
    with Engine(fault=lambda body, n: fault) as s, client(s, limits=Limits(concurrency=2)) as c:
        with pytest.raises(DataError) as e: c.predict([str(i) for i in range(50)], DEPARTMENT)
        assert fault in str(e.value) and 'sk-very' not in str(e.value) and len(s.bodies) <= 4


def test_nobody_there_stops_the_run():
    with Engine() as s: base = s.base
    c = SystemOne(base, limits=Limits(concurrency=2, tries=2, backoff=.01))
    start = time.monotonic()
    with pytest.raises(DataError, match='not reached'): c.predict([str(i) for i in range(2000)], DEPARTMENT)
    assert c.caller.tries <= 8 and time.monotonic() - start < 5


def test_a_question_that_the_engine_refuses_is_not_answered(tmp_path):
    data = Dataset('toy', [Item(f'{n}', f't{n}', MOOD, None) for n in range(5)], sha256='0'*64)
    with Engine(fault=lambda body, n: '422') as s, client(s) as c:
        assert run(c, data, tmp_path) == 'n/a' and not list((tmp_path/'systems'/'engine').glob('*.usage*'))
    with Engine(fault=lambda body, n: '422' if body['state'] == 't3' else None) as s, client(s) as c:      # one text: no verdict on the question
        with pytest.raises(DataError, match='1 of 5 texts'): run(c, data, tmp_path)


@pytest.mark.parametrize('per_minute, calls, seconds', [(600, 21, .9), (30, 2, 1.5)])
def test_the_rate_limit_holds(per_minute, calls, seconds):
    with Engine() as s, client(s, limits=Limits(concurrency=16, per_minute=per_minute)) as c:
        c.predict([str(i) for i in range(calls)], DEPARTMENT)
        assert s.times[-1] - s.times[0] > seconds


def test_so_many_calls_are_in_flight_and_no_more():
    with Engine(fault=lambda body, n: 'slow:0.05') as s, client(s, limits=Limits(concurrency=5)) as c:
        c.predict([str(i) for i in range(25)], DEPARTMENT)
        assert s.most_flying == 5


# A thousand items, one call in ten fails, killed twice

CLIENT = '''
import sys
sys.path.insert(0, sys.argv[1])
from conftest import *
from polyroute.items import read_items
from polyroute.systemone import SystemOne, run
from polyroute.wire import Limits
data, out = read_items(sys.argv[2]), sys.argv[3]
with SystemOne(sys.argv[4], 'secret-model-7b', slug='engine', key_env='ENGINE_KEY', identity='engine', limits=Limits(concurrency=16, backoff=.005), journal=out + '/systems/engine/calls.jsonl') as c:
    print(run(c, data, out))
'''

def test_a_thousand_items_survive_two_kills(tmp_path):
    data = toy_data(tmp_path/'toy.jsonl', 1000)
    kinds = ['500', '429:0.02', 'cut', 'not-json', 'text:names', 'text:missing', '503:0.01']
    fails = lambda body, n: kinds[len(body['state']) % 7 + int(body['state'][-1]) % 3 - 2] if n == 0 and int(body['state'].split()[-1]) % 10 == 3 else None
    out, journal = tmp_path/'out', tmp_path/'out'/'systems'/'engine'/'calls.jsonl'
    with Engine(fault=fails) as s:
        args = [sys.executable, '-c', CLIENT, str(Path(__file__).parent), str(tmp_path/'toy.jsonl'), str(out), s.base]
        for lines in (200, 600):
            p = subprocess.Popen(args, stdout=subprocess.DEVNULL)
            while p.poll() is None and not (journal.exists() and journal.read_bytes().count(b'\n') >= lines): time.sleep(.02)
            assert p.poll() is None, 'it must be killed while it runs'
            p.send_signal(signal.SIGKILL); p.wait()
            kept = [json.loads(l) for l in journal.read_bytes().split(b'\n')[:-1]]
            assert len(kept) >= lines and not (out/'systems'/'engine'/'toy.jsonl').exists()
        r = subprocess.run(args, capture_output=True, text=True)
        assert r.stdout.strip() == 'computed' and r.stderr == '', r.stderr
        served = sum(s.tries.values())
    rows = [json.loads(l) for l in journal.read_text().split('\n')[:-1]]
    assert len(rows) == 1000 == len({r['key'] for r in rows})                     # nothing lost, nothing doubled
    p = read_predictions(out/'systems'/'engine'/'toy.jsonl', data)
    np.testing.assert_allclose(p.probs, expected(data.states, DEPARTMENT), atol=1e-5)
    assert 1000 < served <= 1000 + 100*2 + 2*16                                   # a kill repeats no more than what was in flight
    usage = json.loads((out/'systems'/'engine'/'usage.json').read_text())['toy']
    assert usage['items'] == 1000 and set(usage['ms']) == {'p50', 'p90', 'p99'} and usage['input_tokens']['per_item'] == 10 and 0 < usage['tried_again'] <= 100
    for path, content in tree(out).items(): assert not any(word in content for word in (b'secret', b'127.0.0.1', b'text 7')) , path


def test_any_order_of_answers_gives_the_same_bytes(tmp_path):
    data = toy_data(tmp_path/'toy.jsonl', 60)
    for name, delay in (('a', None), ('b', lambda body, n: f'slow:{int(body["state"].split()[-1]) % 5 * .02}')):
        with Engine(fault=delay or (lambda body, n: None)) as s, client(s) as c: run(c, data, tmp_path/name)
    a, b = ({k: v for k, v in tree(tmp_path/n).items() if 'usage' not in k} for n in 'ab')
    assert a == b and len(a) == 3


def test_what_is_there_is_not_asked_for_again(tmp_path):
    data = toy_data(tmp_path/'toy.jsonl', 20)
    with Engine() as s:
        with client(s) as c: assert run(c, data, tmp_path/'out') == 'computed'
        with client(s) as c: assert run(c, data, tmp_path/'out') == 'kept'
        assert len(s.bodies) == 20
        with client(s, model='another') as c: assert run(c, data, tmp_path/'out') == 'computed'
        assert len(s.bodies) == 40


def test_the_version_follows_the_engine_and_names_nothing():
    with Engine() as s:
        versions = {client(s, **kw).card.version for kw in ({}, {'model': 'm2'}, {'options': {'lang': 'de'}}, {'identity': None}, {'identity': 'x'})}
        assert len(versions) == 5 and client(s).card.version == client(s, limits=Limits(), price=(1, 2), together=1).card.version
        assert 'secret' not in json.dumps(client(s).card.recipe) and '127' not in json.dumps(client(s, identity=None).card.recipe)


@pytest.mark.parametrize('kw, why', [(dict(base_url='localhost:1'), 'must begin with http'), (dict(base_url='http://h', options={'state': 1}), 'must not set state'), (dict(base_url='http://h', together=0), '"together"'),
                                     (dict(base_url='http://h', key_env='sk-abc'), 'not the key itself'), (dict(base_url='http://h', slug='My Engine'), 'a-z, 0-9')])
def test_bad_settings(kw, why):
    with pytest.raises(ValueError, match=why): SystemOne(**kw)


# Wire

@given(st.lists(st.integers(0, 30), max_size=40), st.integers(1, 6), st.integers(0, 3))
@fast
def test_every_job_ends_once_in_the_journal_or_among_the_faults(jobs, concurrency, failing):
    tries = {}
    def send(key, job):
        tries[job] = tries.get(job, 0) + 1
        if failing and job % 4 < failing: raise Fault('no', again=job % 2 == 0)
        return job, {}
    done = []
    c = Caller(send, Limits(concurrency=concurrency, tries=2, backoff=0))
    faults = c.call({digest(j): j for j in jobs}, done.append)
    bad = {j for j in jobs if failing and j % 4 < failing}
    assert set(faults) == {digest(j) for j in bad} and {k for k in c.journal.calls} == {digest(j) for j in set(jobs) - bad} and sorted(done) == sorted({digest(j) for j in jobs})
    assert tries == {j: 2 if j in bad and j % 2 == 0 else 1 for j in set(jobs)}


def test_an_error_of_ours_is_not_swallowed():
    def send(key, job): raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError): Caller(send).call({'a': 1})


@pytest.mark.parametrize('kind, absent', [('ConnectError', True), ('ConnectTimeout', True), ('PoolTimeout', True), ('UnsupportedProtocol', True), ('ReadTimeout', False), ('RemoteProtocolError', False)])
def test_nobody_there_is_told_from_an_answer_that_broke_off(kind, absent):
    import httpx2
    def refuse(request): raise getattr(httpx2, kind)('no')
    c = SystemOne('http://h', key_env='', limits=Limits(tries=1, backoff=0, concurrency=1))
    c.client = httpx2.Client(transport=httpx2.MockTransport(refuse))
    with pytest.raises(DataError, match=f'{"not reached" if absent else "no complete answer"}.*{kind}'): c.predict(['a', 'b', 'c', 'd'], DEPARTMENT)
    assert c.caller.tries == (1 if absent else 4)


@pytest.mark.parametrize('cut', range(0, 200, 17))
def test_a_journal_cut_anywhere_keeps_its_whole_lines(tmp_path, cut):
    with Journal(tmp_path/'j') as j:
        for n in range(5): j.add(str(n), Call({'x': 'ü\u2028'}, 1.5, 1))
    data = (tmp_path/'j').read_bytes()
    (tmp_path/'j').write_bytes(data[:cut])
    with Journal(tmp_path/'j') as j:
        assert len(j) == data[:cut].count(b'\n')
        for n in range(5): j.add(str(n), Call({'x': 'ü\u2028'}, 1.5, 1))
    assert (tmp_path/'j').read_bytes() == data


def test_a_file_that_is_no_journal_is_refused(tmp_path):
    (tmp_path/'j').write_text('{"id": "a"}\n')
    with pytest.raises(DataError, match='line 1: not a line of a journal'): Journal(tmp_path/'j')
    with pytest.raises(DataError, match='not a line'): Journal(tmp_path/'j')       # and it is not left locked


@given(st.text('abk-', min_size=1, max_size=5), st.text('abk- ', max_size=40))
@fast
def test_no_secret_is_left(secret, text): assert secret.lower() not in hide(text, [secret]).lower().replace('[hidden]', '\0')


# The real server

@pytest.fixture(scope='module')
def laya_server(tmp_path_factory):
    "laya.serve with a tiny checkpoint, on a free port: its address and the checkpoint."
    laya = pytest.importorskip('laya')
    pytest.importorskip('fastapi'); uvicorn = pytest.importorskip('uvicorn')
    import torch
    from laya.serve import create_app
    from polyroute.encoders import checkpoint
    from polyroute.laya import tiny_encoder
    torch.set_num_threads(1)
    base, before = tmp_path_factory.mktemp('tiny'), dict(os.environ)
    os.environ |= dict(POLYROUTE_CACHE=str(base/'cache'), LAYA_API_KEY='sk-very-secret', LAYA_MAX_CONCURRENT='4')
    try:
        made = checkpoint(tiny_encoder(base/'encoder', load('train').states[:400]))
        app = create_app(laya.Router(models={'tiny': str(made)}, device='cpu'))
    finally:
        os.environ.clear(); os.environ.update(before)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level='warning'))
    thread = threading.Thread(target=server.run, daemon=True); thread.start()
    for _ in range(400):
        if server.started: break
        time.sleep(.05)
    yield f'http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}', made
    server.should_exit = True; thread.join(5)


def test_layas_own_server(laya_server, tmp_path):
    from polyroute.laya import Laya
    url, made = laya_server
    states = load('ml_test').states[::60] + ['a [MASK] b', 'x'*3000]
    data = Dataset('toy', [Item(f'{n}-{q.name}', s, q, None) for n, s in enumerate(states) for q in (DEPARTMENT, URGENCY, REFUND)], sha256='0'*64)
    with SystemOne(url, 'tiny', slug='engine', key_env='ENGINE_KEY', limits=Limits(concurrency=8, backoff=.05)) as c:       # more at once than it admits: 503 with Retry-After
        assert run(c, data, tmp_path) == 'computed'
        rows = c.usage(data)
    assert all(r['input_tokens'] > 0 for r in rows) and len(rows) == len(data)
    p, ours = read_predictions(tmp_path/'systems'/'engine'/'toy.jsonl', data), Laya(made, device='cpu')
    for q, ix in data.by_question(): np.testing.assert_allclose(p.probs[ix][:, :len(q.options)], ours.predict([data[i].state for i in ix], q), atol=1.5e-4)


def test_layas_own_server_refuses(laya_server):
    url, _ = laya_server
    many = Question.from_json('many', {'type': 'choice', 'instructions': '?', 'criteria': [f'option {n}' for n in range(101)]})
    with SystemOne(url, 'tiny', key_env='ENGINE_KEY', limits=QUICK) as c:
        with pytest.raises(UnsupportedQuestion, match='too many choice options'): c.predict(['a', 'b'], many)
        with pytest.raises(DataError, match='1 of 2 texts have no answer.*413'): c.predict(['a', 'x'*50_001], DEPARTMENT)
    with SystemOne(url, 'tiny', key_env='NO_SUCH_KEY', limits=QUICK) as c:
        with pytest.raises(DataError, match='401: the key is missing'): c.predict(['a'], DEPARTMENT)
