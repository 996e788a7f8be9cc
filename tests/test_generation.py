"The generation path end to end against a server that misbehaves, and the reader of answers against random text."
import json, os, signal, subprocess, sys, textwrap, time, tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path
import pytest
from hypothesis import given, settings, strategies as st
sys.path.insert(0, str(Path(__file__).parent))
from openai_server import Server, sorter
from polyroute import generation as g
from polyroute.items import DEPARTMENT, DataError, data_dir, read_rows, write_jsonl
from polyroute.release import RAW, blind_filter, duplicate_key, raw_rows

CONFIG = replace(g.config_from_json(tomllib.loads(g.EXAMPLE)), model='m', question=DEPARTMENT)   # 2 languages x 3 departments x 5 texts
KEY = 'sk-very-secret-0123'


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv('OPENAI_API_KEY', KEY)
    monkeypatch.setenv('NO_PROXY', '127.0.0.1')


def endpoint(server, **kw):
    return g.Endpoint(server.url, **dict(backoff=.01, timeout=5) | kw)


def hello(n=0, **params):
    return g.Request(f'hello-{n}', ({'role': 'user', 'content': f'Say hello {n}.'},), {'model': 'm', 'temperature': 0, 'max_tokens': 10, **params})


def events(path):
    return [e for _, e in read_rows(path)]


def nothing_lost_nothing_paid_twice(counts, server, out):
    assert (counts['written'], counts['kept'], counts['without_label']) == (30, 30, 0)
    assert len(server.paid) == 12 and set(server.paid.values()) == {1}
    assert KEY not in ''.join(p.read_text() for p in out.iterdir() if p.suffix != '.lock') and server.auth == {f'Bearer {KEY}'}
    answered = Counter(e['key'] for e in events(out/'log.jsonl') if e['event'] == 'answered')
    assert answered == server.paid


# ---- the endpoint misbehaves

@pytest.mark.parametrize('fault', ['429', '500', '429:0.2'])
def test_refusals_are_repeated_until_answered(tmp_path, fault):
    with Server(fault=lambda body, n: fault if n < 2 else None) as s:
        counts = g.run(CONFIG, endpoint(s), tmp_path)
        nothing_lost_nothing_paid_twice(counts, s, tmp_path)
        assert set(s.tries.values()) == {3} and counts['problems'] == 0


@pytest.mark.parametrize('fault, least', [('429:0.7', .7), ('429:date', .5)])
def test_retry_after_is_honoured_by_all_workers(fault, least):
    seen = []
    def once(body, n):
        seen.append(1)
        return fault if len(seen) == 1 else None
    with Server(fault=once) as s:
        answers = g.ask([hello(i) for i in range(3)], endpoint(s, concurrency=1), g.Log())
        assert {a.status for a in answers.values()} == {'answered'}
        assert s.times[1] - s.times[0] >= least and s.times[2] - s.times[1] < .5   # the second try of anything waits, whoever makes it


def test_a_wait_that_is_too_long_is_reported_not_shortened():
    with Server(fault=lambda b, n: '429:3600') as s:
        start, log = time.monotonic(), g.Log()
        a = g.ask([hello()], endpoint(s), log)['hello-0']
        assert a.status == 'refused' and 'asks to wait 3600 s' in a.error and time.monotonic() - start < 3 and sum(s.tries.values()) == 1
    with Server() as s: assert g.ask([hello()], endpoint(s), log)['hello-0'].status == 'answered'   # the next run gets it


@pytest.mark.parametrize('fault', ['cut', 'cut-chunk', 'not-json', 'no-choices', 'slow:1.0', '504'])
def test_what_may_be_paid_is_never_sent_again_unasked(tmp_path, fault):
    first_write = lambda body, n: fault if n == 0 and 'right answer is other' in str(body) else None
    with Server(fault=first_write) as s:
        counts = g.run(CONFIG, endpoint(s, timeout=.4), tmp_path)
        assert counts['written'] == 20 and counts['kept'] == 20 and counts['problems'] == 2       # reported …
        problems = [p for _, p in read_rows(tmp_path/'problems.jsonl')]
        assert {(p['request'], p['status']) for p in problems} == {('write/pt/t1/other', 'lost'), ('write/sw/t1/other', 'lost')}
        again = g.run(CONFIG, endpoint(s), tmp_path)
        assert again == counts and set(s.paid.values()) == {1} and sum(s.tries.values()) == 10    # … and not sent again
        s.idempotent = True                                                                       # the endpoint keeps answers by key
        nothing_lost_nothing_paid_twice(g.run(CONFIG, endpoint(s, resend=True), tmp_path), s, tmp_path)


@pytest.mark.parametrize('fault', ['cut', 'not-json', 'slow:1.0', '504'])
def test_an_idempotent_endpoint_is_asked_again_in_the_same_run(tmp_path, fault):
    with Server(fault=lambda body, n: fault if n == 0 else None, idempotent=True) as s:
        nothing_lost_nothing_paid_twice(g.run(CONFIG, endpoint(s, timeout=.3, resend=True), tmp_path), s, tmp_path)


def test_raw_text_of_an_unreadable_body_is_kept(tmp_path):
    with Server(fault=lambda b, n: 'not-json') as s, g.Log(tmp_path/'log.jsonl') as log: g.ask([hello()], endpoint(s), log)
    assert [e['event'] for e in events(tmp_path/'log.jsonl')] == ['sent', 'lost'] and events(tmp_path/'log.jsonl')[1]['raw'].startswith('<html>')


def test_a_bad_answer_is_kept_reported_and_asked_anew_only_if_told(tmp_path):
    fault = lambda body, n: 'text:Sorry, [no' if 'is billing (' in str(body) else None
    with Server(fault=fault) as s:
        counts = g.run(CONFIG, endpoint(s), tmp_path)
        assert counts['written'] == 20 and counts['problems'] == 2 and set(s.paid.values()) == {1}
        assert {p['problem'] for _, p in read_rows(tmp_path/'problems.jsonl')} >= {'the array breaks off'}
        s.fault = lambda body, n: None
        assert g.run(CONFIG, endpoint(s), tmp_path) == counts                        # same answers from the log, nothing sent
        assert sum(s.tries.values()) == 6 + 4
        counts = g.run(replace(CONFIG, asks=2), endpoint(s), tmp_path)               # a new question, a new key
        assert counts['kept'] == 30 and set(s.paid.values()) == {1} and len(s.paid) == 14


def test_wrong_key_stops_the_run_and_is_not_written_down(tmp_path):
    with Server(fault=lambda b, n: '401') as s:
        counts = g.run(CONFIG, endpoint(s, concurrency=1), tmp_path)
        assert counts['written'] == 0 and counts['problems'] == 6 and sum(s.tries.values()) == 1
    assert KEY not in (tmp_path/'log.jsonl').read_text() + (tmp_path/'problems.jsonl').read_text()


@pytest.mark.parametrize('fault, tries', [('400', 3), ('quota', 1), ('404', 1), ('405', 1), ('425', 6), ('500', 6)])
def test_hopeless_requests_are_given_up(fault, tries):
    with Server(fault=lambda b, n: fault) as s:
        answers = g.ask([hello(i) for i in range(3)], endpoint(s, concurrency=1, tries=2), log := g.Log())
        assert 'answered' not in {a.status for a in answers.values()} and sum(s.tries.values()) == tries and log.requests == 0
        assert KEY not in str(answers)


# ---- killed and resumed

CLIENT = '''
import sys, tomllib
from dataclasses import replace
from polyroute import generation as g
from polyroute.items import DEPARTMENT
c = replace(g.config_from_json(tomllib.loads(g.EXAMPLE)), model='m', question=DEPARTMENT)
g.run(c, g.Endpoint(sys.argv[1], concurrency=2, timeout=20), sys.argv[2])
'''

@pytest.mark.parametrize('idempotent', [True, False])
def test_killed_in_the_middle_and_resumed(tmp_path, idempotent):
    with Server(fault=lambda body, n: 'slow:0.25', idempotent=idempotent) as s:
        p = subprocess.Popen([sys.executable, '-c', CLIENT, s.url, str(tmp_path)], env={**os.environ, 'PYTHONPATH': str(Path(g.__file__).parents[1])})
        deadline = time.monotonic() + 60
        while len(s.paid) < 5 and time.monotonic() < deadline: time.sleep(.01)
        p.send_signal(signal.SIGKILL); p.wait()
        with open(tmp_path/'log.jsonl', 'ab') as f: f.write(b'{"event": "answ')       # as if killed in the middle of a line
        before = [e['event'] for _, e in [(0, json.loads(l)) for l in (tmp_path/'log.jsonl').read_text().split('\n') if l.endswith('}')]]
        s.fault = lambda body, n: None
        flying = before.count('sent') - before.count('answered')
        assert 1 <= flying <= 2 and before.count('answered') >= 3
        if idempotent: return nothing_lost_nothing_paid_twice(g.run(CONFIG, endpoint(s, resend=True), tmp_path), s, tmp_path)
        g.run(CONFIG, endpoint(s), tmp_path)
        lost = [p for _, p in read_rows(tmp_path/'problems.jsonl')]
        assert len(lost) == flying and {x['status'] for x in lost} == {'lost'}          # named, not sent again
        assert set(s.paid.values()) == {1}
        s.idempotent = True                                                             # a person decides to send them again
        counts = g.run(CONFIG, endpoint(s, resend=True), tmp_path)
        assert (counts['kept'], counts['problems'], set(s.paid.values()), len(s.paid)) == (30, 0, {1}, 12)


def test_two_runs_cannot_share_a_log(tmp_path):
    with g.Log(tmp_path/'log.jsonl'):
        with pytest.raises(DataError, match='another run is writing'): g.run(CONFIG, g.Replay({}), tmp_path)


def test_a_broken_log_says_where(tmp_path):
    (tmp_path/'log.jsonl').write_text('{"event": "sent"}\n{"event"\n')
    with pytest.raises(DataError, match='log.jsonl, line 1: not an event'): g.Log(tmp_path/'log.jsonl')
    (tmp_path/'log.jsonl').write_text('{"event"\n{"event"\n')
    with pytest.raises(DataError, match='log.jsonl, line 1: not a JSON object'): g.Log(tmp_path/'log.jsonl')


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 4000))
def test_a_log_cut_anywhere_is_read(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp('log')/'log.jsonl'
    with g.Log(path) as log:
        for i in range(4): log.start(hello(i)); log.finish(hello(i), g.chat_response('täxt\u2028\ud83d'))
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    with g.Log(path) as log:
        lines = whole[:cut].count(b'\n')
        assert len(log.answers) == lines // 2 and bool(log.uncertain(hello(lines // 2).key)) == bool(lines % 2)
        log.start(hello(9))
    assert len(events(path)) == lines + 1


# ---- budget, rate, concurrency, parameters

@pytest.mark.parametrize('concurrency', [1, 4])
def test_a_budget_holds_over_runs_and_threads(tmp_path, concurrency):
    with Server() as s:
        for budget, paid in ((g.Budget(requests=4), 4), (g.Budget(requests=4), 4), (g.Budget(requests=7), 7), (g.Budget(), 12)):
            counts = g.run(CONFIG, endpoint(s, budget=budget, concurrency=concurrency), tmp_path)
            assert sum(s.paid.values()) == paid
        nothing_lost_nothing_paid_twice(counts, s, tmp_path)


def test_a_budget_in_tokens_is_never_exceeded():
    with Server() as s:                                   # each request costs 100 tokens and can cost about 1,100
        log, asked = g.Log(), [hello(i, max_tokens=1000) for i in range(40)]
        answers = g.ask(asked, endpoint(s, budget=g.Budget(tokens=2500)), log)
        assert log.tokens == 100 * sum(s.paid.values()) <= 2500 and 10 <= sum(s.paid.values()) <= 15
        assert 'tokens leaves' in next(a.error for a in answers.values() if a.status == 'unsent')
        with pytest.raises(DataError, match='needs "max_tokens"'): g.ask([replace(hello(99), params={'model': 'm'})], endpoint(s, budget=g.Budget(tokens=9)), log)


def test_rate_and_concurrency():
    with Server(fault=lambda b, n: 'slow:0.05') as s:
        g.ask([hello(i) for i in range(12)], endpoint(s, concurrency=3), g.Log())
        assert 2 <= s.most_flying <= 3
    with Server() as s:
        g.ask([hello(i) for i in range(6)], endpoint(s, per_minute=240, concurrency=6), g.Log())
        assert s.times[-1] - s.times[0] >= .9             # four a second


def test_parameters_arrive_as_they_are():
    with Server(answer=lambda b: 'x') as s:
        g.ask([hello(0, top_k=5, seed=3)], endpoint(s), g.Log())
        assert s.bodies == [{'model': 'm', 'temperature': 0, 'max_tokens': 10, 'top_k': 5, 'seed': 3, 'messages': [{'role': 'user', 'content': 'Say hello 0.'}]}]


def test_labels_can_be_read_by_another_model_or_endpoint(tmp_path):
    with Server() as writer, Server() as reader:
        counts = g.run(replace(CONFIG, label={'temperature': 0, 'model': 'unrelated'}), endpoint(writer), tmp_path, reader=endpoint(reader))
        assert counts['kept'] == 30 and {b['model'] for b in writer.bodies} == {'m'} and {b['model'] for b in reader.bodies} == {'unrelated'}


def test_the_key_comes_from_the_environment_only(monkeypatch):
    monkeypatch.delenv('OPENAI_API_KEY')
    with pytest.raises(DataError, match='OPENAI_API_KEY'): g.Endpoint()
    for secret in ('sk-very-secret-0123', 'hf_verysecret0123'):                       # the key in place of the variable's name
        with pytest.raises(DataError, match='environment variable') as e: g.Endpoint(key_env=secret)
        assert secret not in str(e.value)
    with Server(answer=lambda b: 'x') as s: assert g.ask([hello()], endpoint(s), g.Log())['hello-0'].text == 'x'


def test_the_command_never_shows_a_key(tmp_path):
    from conftest import run_command
    out = run_command('generate', '--base-url', 'http://127.0.0.1:9', '--model', 'm', '--key-env', KEY, '--out', tmp_path/'o', code=1)
    assert 'not the key itself' in out and KEY not in out


def test_equal_questions_are_put_once_and_ids_are_unique():
    with Server(answer=lambda b: 'x') as s:
        a = g.ask([hello(), replace(hello(), id='other')], endpoint(s), g.Log())
        assert a['hello-0'] == a['other'] and sum(s.paid.values()) == 1
        with pytest.raises(DataError, match='stands twice'): g.ask([hello(), hello()], endpoint(s), g.Log())


# ---- batch files

def provider(path, out, fail=lambda i: None):
    "Answer a request file as a batch provider does, in another order."
    rows = [r for _, r in read_rows(path)]
    for i, r in enumerate(rows):
        error = fail(i)
        if error == 'missing': continue
        body = {'error': {'message': 'broken'}} if error else g.chat_response(sorter(r['body']))
        write_jsonl(out/f'r{i}.jsonl', [dict(id=f'batch_req_{i}', custom_id=r['custom_id'], response=None if error == 'expired' else dict(status_code=500 if error else 200, request_id='', body=body),
                                             error={'code': 'batch_expired', 'message': 'expired'} if error == 'expired' else None)])
    return sorted(out.glob('r*.jsonl'), reverse=True), rows


def test_batch_files_in_and_out_until_nothing_is_left(tmp_path):
    req, results, seen = tmp_path/'requests.jsonl', [], Counter()
    for turn, fail in enumerate((lambda i: ('missing', 'expired', '500')[i] if i < 3 else None, lambda i: None, lambda i: None, lambda i: None)):
        teacher = g.BatchFiles(req, results)
        counts = g.run(CONFIG, teacher, tmp_path/'out')
        assert not teacher.unmatched
        (tmp_path/f'{turn}').mkdir()
        new, rows = provider(req, tmp_path/f'{turn}', fail)
        if turn == 1: assert counts['written'] == 15 and len(rows) == 6 and counts['problems'] == 6   # three texts still, and the labels of the others
        seen.update(r['custom_id'] for r in rows)
        results += new
    assert rows == [] and (counts['kept'], counts['problems']) == (30, 0)
    assert len(seen) == 12 and sorted(seen.values()) == [1] * 9 + [2] * 3        # only the missing and the failed were asked for again
    stray = g.BatchFiles(req, results)
    g.run(replace(CONFIG, model='another'), stray, tmp_path/'elsewhere')
    assert stray.unmatched == set(seen)                                          # answers to other questions are not taken


def test_a_batch_result_without_id_says_where(tmp_path):
    write_jsonl(tmp_path/'r.jsonl', [dict(custom_id='a'), dict(id='b')])
    with pytest.raises(DataError, match='line 2: a batch result needs "custom_id"'): g.BatchFiles(tmp_path/'q.jsonl', [tmp_path/'r.jsonl'])


# ---- reading answers

TEXT = st.text(max_size=30)
PROSE = st.text(st.characters(exclude_characters='[]<>'), max_size=40)

@settings(max_examples=60, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=12), PROSE, PROSE, st.booleans(), st.booleans(), st.sampled_from(['{}', '```json\n{}\n```', '{{"texts": {}}}', '<think>[1, "a"]</think>{}']))
def test_a_whole_array_is_found_in_anything_around_it(items, before, after, ascii, indent, wrap):
    text = before + wrap.format(json.dumps(items, ensure_ascii=ascii, indent=2 if indent else None)) + after
    assert g.read_array(text) == (items, [])


@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=6), st.data())
def test_a_cut_array_gives_a_prefix_and_says_so(items, data):
    text = json.dumps(items)
    got, faults = g.read_array(text[:data.draw(st.integers(1, len(text) - 1))])
    assert faults and all('[' in i or i in items for i in got) or got == items[:len(got)] and faults == ['the array breaks off']


@settings(max_examples=80, deadline=None)
@given(st.one_of(st.text(), st.text(st.sampled_from('[]{}",\\ab1 \n`')), st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)).map(json.dumps)))
def test_no_answer_breaks_the_reader(text):
    texts, faults = g.read_texts(text, 5)
    assert texts is None or 1 <= len(texts) <= 5 and all(isinstance(t, str) and t.strip() and t.encode() for t in texts) and len(set(texts)) == len(texts)
    assert texts is not None and len(texts) == 5 or faults
    keys, faults = g.read_keys(text, 2, DEPARTMENT.options)
    assert (keys is None or len(keys) == 2 and set(keys) <= {*DEPARTMENT.options, None}) and (faults or keys and None not in keys)


def test_hostile_answers_end_soon():
    start = time.monotonic()
    for text in ('[' * 100_000, '["' * 50_000, '[1' + '0' * 10_000 + ']', '[' + '"a",' * 100_000, '{"a":' * 50_000, '[[' * 50_000 + ']]'): g.read_texts(text, 10)
    assert time.monotonic() - start < 10


@given(st.lists(st.sampled_from(DEPARTMENT.options), min_size=1, max_size=10), st.integers(-1, 1), st.data())
def test_labels_are_taken_by_position_or_not_at_all(keys, off, data):
    answer, wrong = list(keys), data.draw(st.integers(0, len(keys) - 1))
    answer[wrong] = data.draw(st.sampled_from(['Billing', 'refunds', '', None, 3, ['billing'], {'a': 1}]))
    got, faults = g.read_keys(json.dumps(answer), len(keys) + off, DEPARTMENT.options)
    if off: assert got is None and 'unknown' in faults[-1]
    else: assert got == [None if i == wrong else k for i, k in enumerate(keys)] and len(faults) == 1


@given(TEXT)
def test_no_text_can_pass_for_the_next_number(text):
    prompt = g.label_request(CONFIG, 'x', [text, 'last']).messages[0]['content']
    lines = [l for l in prompt.split('\n') if l[:1].isdigit()]
    assert len(lines) == 2 and json.loads(lines[0].partition(' ')[2]) == text


# ---- configurations, blind reading, retention

def test_configuration_files(tmp_path):
    (tmp_path/'a.toml').write_text(g.EXAMPLE)
    (tmp_path/'a.json').write_text(json.dumps(tomllib.loads(g.EXAMPLE)))
    assert g.read_config(tmp_path/'a.toml') == g.read_config(tmp_path/'a.json')
    for text, what in ((b'name = ', 'a.toml: Invalid'), (b'name = "x"', 'needs "blocks"'), (b'\xff', 'not UTF-8'), (g.EXAMPLE.replace('choice', 'score').encode(), 'score'),
                       (g.EXAMPLE.replace('runs', 'rnus').encode(), "no setting 'rnus'"), (g.EXAMPLE.replace('k = 5', 'k = 0').encode(), 'from 1 to 100'),
                       (g.EXAMPLE.replace('"language"', '"dialect"').encode(), 'dialect')):
        (tmp_path/'a.toml').write_bytes(text)
        with pytest.raises(DataError, match=what): g.read_config(tmp_path/'a.toml')
    with pytest.raises(DataError, match='no such file'): g.read_config(tmp_path/'b.toml')


def test_the_blind_reader_is_blind(tmp_path):
    for by in ('call', 'target'):
        with Server() as s:
            counts = g.run(replace(CONFIG, label_by=by), endpoint(s), tmp_path/by)
            asked = [b['messages'][0]['content'] for b in s.bodies if b['temperature'] == 0]
            assert counts['kept'] == 30 and len(asked) == (6 if by == 'call' else 2)
            assert not any(w in a.split('\n1. ')[0] + a.split('\n\n')[-1] for a in asked for w in ('Swahili', 'Portuguese', 'furniture', 't1', 'intended'))


def test_separation_and_disputes(tmp_path):
    runs = (g.Run('train', 'r1', 'A', 'x'), g.Run('test', 't1', 'T', 'y'))
    c = replace(CONFIG, blocks=(g.Block('language', (g.target('pt'),), runs),), k=2)
    texts = {f'write/pt/{call}/{o}': json.dumps([f'{o} one', f'{call} {o} two']) for call in ('r1', 't1') for o in DEPARTMENT.options}
    labels = {f'label/pt/{call}/{o}': json.dumps([o, 'other']) for call in ('r1', 't1') for o in DEPARTMENT.options}
    kept, disputed, doubles = g.generate(c, g.Replay(texts | labels)).kept()
    assert {x['run'] for x in doubles} == {'train'} and len(doubles) == 3 and {x['run'] for x in kept if x['text'].endswith('one')} == {'test'}
    assert Counter(x['department'] for x in disputed) == {'billing': 2, 'technical': 2}
    assert len(g.generate(c, g.Replay(texts | labels)).kept({duplicate_key('BILLING  one')})[2]) == 4


def test_retention_counts_equal_the_raw_files():
    blind = {r['id']: r['label'] for r in raw_rows('blind_labels.jsonl')}
    raw = {s: [json.loads(l) for l in (data_dir()/'raw'/f).read_bytes().decode().split('\n') if l] for s, f in RAW.items()}
    assert sum(map(len, raw.values())) == len(blind)
    for source, rows in raw.items():
        for by in (('department',), tuple(k for k in ('language', 'variety') if k in rows[0]) + ('department',)):
            table = g.retention(rows, blind, by)
            for r in table:
                mine = [c for c in rows if all(c[k] == r[k] for k in by)]
                assert r['generated'] == len(mine) and r['kept'] == len(blind_filter(mine, blind)[0])
            assert sum(r['generated'] for r in table) == len(rows)


@given(st.lists(st.tuples(st.sampled_from('abc'), st.booleans()), min_size=1, max_size=40))
def test_retention_counts_disagreements(cells):
    rows = [dict(id=str(i), language=l, department='billing', text='') for i, (l, _) in enumerate(cells)]
    table = {r['language']: r for r in g.retention(rows, {str(i): 'billing' if ok else 'other' for i, (_, ok) in enumerate(cells)}, ('language',))}
    for l, r in table.items():
        oks = [ok for x, ok in cells if x == l]
        assert (r['generated'], r['kept']) == (len(oks), sum(oks)) and r['low'] <= r['kept_pct'] <= r['high']


def test_a_bound_on_no_disagreement():
    assert g.upper_bound(0, 100) == pytest.approx(1 - .05 ** (1/100))
    assert g.upper_bound(0, 10_000) == pytest.approx(3 / 10_000, rel=.01)      # the rule of three
    from scipy.stats import binomtest
    for k, n in ((1, 20), (5, 9), (20, 20)): assert g.upper_bound(k, n) == pytest.approx(binomtest(k, n, alternative='less').proportion_ci(.95).high)


def test_import_is_light():
    code = 'import sys, polyroute.generation; print([m for m in ("openai", "tenacity", "torch", "matplotlib", "sklearn", "pandas", "pyrate_limiter") if m in sys.modules])'
    out = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, cwd=Path(g.__file__).parents[1], check=True)
    assert out.stdout.strip() == '[]'
