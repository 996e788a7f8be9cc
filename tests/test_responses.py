"Frozen texts: the same bytes after any interruption, and files that are refused with their place."
import gzip, json, os, signal, subprocess, sys, time
from pathlib import Path
import pytest
from hypothesis import given, strategies as st
from conftest import fast, lines_of, tree
from polyroute.items import DataError
from polyroute.responses import (CHUNK, Failure, Generator, Prompt, Responses, check_texts, parse_responses, prompts_digest, read_responses, respond, response_line,
                                 responses_path, write_responses)
from polyroute.runs import locked, read_runs
from polyroute.systems import Card, read_card


def ask(n): return [Prompt(f'p{i:04d}', ({'role': 'user', 'content': f'text {i}'},), {'number': i}) for i in range(n)]


class Echo:
    "Says what it was told, fails on every seventh prompt, and dies when `dies(asked)`."
    def __init__(self, dies=lambda n: False, slug='echo', **recipe):
        self.card, self.dies, self.asked = Card(slug, 'Echo', 'ref', 'A toy.', 'none', recipe=recipe), dies, []
    def generate(self, prompts):
        self.asked += [p.id for p in prompts]
        if self.dies(len(self.asked)): raise KeyboardInterrupt
        return [Failure('not today') if p.fields['number'] % 7 == 6 else p.messages[-1]['content'] for p in prompts]


def test_the_protocol(): assert isinstance(Echo(), Generator) and not isinstance(object(), Generator)


@given(st.integers(1, 3*CHUNK + 2), st.lists(st.integers(0, 120), max_size=3))
@fast
def test_any_interruptions_end_in_the_same_bytes(tmp_path_factory, n, deaths):
    a, b, prompts = tmp_path_factory.mktemp('a'), tmp_path_factory.mktemp('b'), ask(n)
    respond(Echo(), prompts, 's', 'romcom', data_sha256='d'*64, root=a)
    for at in deaths:
        try: respond(Echo(lambda m: m > at), prompts, 's', 'romcom', data_sha256='d'*64, root=b)
        except KeyboardInterrupt: pass
    respond(Echo(), prompts, 's', 'romcom', data_sha256='d'*64, root=b)
    assert tree(a) == tree(b)
    r = read_responses('echo', 's', 'romcom', root=b, prompts=prompts, data_sha256='d'*64)
    assert list(r.texts) == [p.id for p in prompts if p.fields['number'] % 7 != 6] and len(r) == n


@pytest.mark.parametrize('cut', range(0, 400, 13))
def test_a_file_cut_anywhere_is_continued(tmp_path, cut):
    prompts = [Prompt(f'p{i}', ({'role': 'user', 'content': f'நன்றி {i}'},), {'number': 0}) for i in range(2*CHUNK)]
    respond(Echo(), prompts, 's', 'romcom', root=tmp_path/'a')
    whole = responses_path('echo', 's', 'romcom', root=tmp_path/'a').read_bytes()
    path = responses_path('echo', 's', 'romcom', root=tmp_path/'b')
    path.parent.mkdir(parents=True)
    path.with_name(path.name + '.partial').write_bytes(whole[:len(whole)*cut//400])
    again = Echo()
    respond(again, prompts, 's', 'romcom', root=tmp_path/'b')
    assert path.read_bytes() == whole and len(again.asked) in (CHUNK, 2*CHUNK) and not path.with_name(path.name + '.partial').exists()


def test_a_killed_process_loses_no_finished_chunk(tmp_path):
    script = tmp_path/'run.py'
    script.write_text(f'''import sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_responses import Echo, ask
from polyroute.responses import respond
class Slow(Echo):
    def generate(self, prompts):
        time.sleep(.15); return super().generate(prompts)
respond(Slow(), ask(300), 's', 'romcom', root=sys.argv[1])
''')
    part = responses_path('echo', 's', 'romcom', root=tmp_path/'b')
    part = part.with_name(part.name + '.partial')
    for lines in (CHUNK, 3*CHUNK):                        # killed twice, the second time further on
        p = subprocess.Popen([sys.executable, str(script), str(tmp_path/'b')])
        for _ in range(600):
            if part.exists() and part.read_bytes().count(b'\n') > lines: break
            time.sleep(.05)
        p.send_signal(signal.SIGKILL); p.wait()
        assert read_responses('echo', 's', 'romcom', root=tmp_path/'b') is None
    again = Echo()
    assert respond(again, ask(300), 's', 'romcom', root=tmp_path/'b') == 'resumed' and len(again.asked) <= 300 - 3*CHUNK
    respond(Echo(), ask(300), 's', 'romcom', root=tmp_path/'a')
    assert tree(tmp_path/'a') == tree(tmp_path/'b')


def test_what_is_kept_and_what_is_run_again(tmp_path):
    run = lambda e=None, prompts=ask(40), **kw: respond(e or Echo(), prompts, 's', 'romcom', root=tmp_path, **kw)
    assert [run(), run(), run(fresh=True)] == ['computed', 'kept', 'computed']
    assert run(data_sha256='e'*64) == 'computed' and run(data_sha256='e'*64) == 'kept'
    assert run(prompts=ask(39), data_sha256='e'*64) == 'computed' and run(Echo(words='other'), prompts=ask(39), data_sha256='e'*64) == 'computed'
    assert run(condition='ask-english') == 'computed'
    assert sorted(p.name for p in (tmp_path/'systems'/'echo'/'romcom').iterdir()) == ['s.ask-english.responses.jsonl', 's.responses.jsonl']
    log = read_runs(tmp_path/'systems'/'echo')
    assert set(log) == {'romcom/s.responses', 'romcom/s.ask-english.responses'} and len(log['romcom/s.responses']) == 3    # two data sets, two versions
    assert log['romcom/s.ask-english.responses'] == [dict(version=Echo().card.version, data='', items=40, failures=5)]
    assert read_card('echo', tmp_path).slug == 'echo'


def test_a_run_killed_between_file_and_log_is_logged_by_the_next(tmp_path):
    respond(Echo(), ask(3), 's', 'romcom', root=tmp_path)
    before = tree(tmp_path)
    (tmp_path/'systems'/'echo'/'runs.json').unlink()
    assert respond(Echo(), ask(3), 's', 'romcom', root=tmp_path) == 'kept' and tree(tmp_path) == before


def test_two_processes_do_not_write_at_once(tmp_path):
    respond(Echo(), ask(3), 's', 'romcom', root=tmp_path)
    path = responses_path('echo', 's', 'romcom', root=tmp_path)
    (part := path.with_name(path.name + '.partial')).touch()
    with locked(part), pytest.raises(DataError, match='another process'): respond(Echo(), ask(3), 's', 'romcom', root=tmp_path, fresh=True)


TEXTS = st.text(max_size=30) | st.just('\ud83d half') | st.just('</script>\u202e\u2028\x00')
@given(st.dictionaries(st.text(min_size=1, max_size=8).filter(lambda s: not any('\ud800' <= c <= '\udfff' for c in s)), TEXTS, max_size=8), st.dictionaries(st.just('!failed'), TEXTS))
@fast
def test_any_text_comes_back(tmp_path_factory, texts, failures):
    r = Responses('x', 's', 'romcom', texts={k: t for k, t in texts.items() if k not in failures}, failures=failures)
    path = tmp_path_factory.mktemp('r')/'s.responses.jsonl'
    assert parse_responses(write_responses(path, r)) == r
    assert path.read_bytes().decode() and path.read_bytes().count(b'\n') == len(r) + 1
    first = path.read_bytes()
    write_responses(path, parse_responses(path))
    assert path.read_bytes() == first


def test_large_files_are_compressed_without_a_time_stamp(tmp_path):
    r, path = Responses('x', 's', 'romcom', texts={f'i{n}': 'word '*2000 for n in range(120)}), tmp_path/'s.responses.jsonl'
    write_responses(path, Responses('x', 's', 'romcom'))
    a = write_responses(path, r)
    assert a.name.endswith('.gz') and not path.exists() and parse_responses(a) == r
    bytes_ = a.read_bytes(); time.sleep(1.1)
    assert write_responses(path, r).read_bytes() == bytes_
    write_responses(path, Responses('x', 's', 'romcom'))
    assert not a.exists() and len(parse_responses(path)) == 0
    a.write_bytes(bytes_[:-50])
    with pytest.raises(DataError, match='not a whole gzip file'): parse_responses(a)


HEAD = json.dumps(Responses('x', 's', 'romcom').header)
@pytest.mark.parametrize('content, why', [
    ('', 'the file is empty'), ('{"id": "a", "response": "b"}', 'the first line must be the header'), ('[1]', 'object'), (HEAD + '\n{"id": "a", "response"', 'line 2: not a JSON'),
    (HEAD + '\n{"response": "b"}', 'line 2: a line needs an "id"'), (HEAD + '\n{"id": "a"}', "line 2, id 'a': a line needs a \"response\""), (HEAD + '\n{"id": "a", "response": "b", "failure": "c"}', "id 'a'"),
    (HEAD + '\n{"id": "a", "response": null}', "id 'a'"), (HEAD + '\n{"id": "a", "response": "b"}'*2, "line 3, id 'a': this id stands on line 2 already"),
    (HEAD.replace('"schema": 1', '"schema": 7'), 'schema 7 is not known'), (HEAD.replace('"system"', '"sys"'), 'lacks system'), (HEAD[:-1] + ', "model": "m"}', 'unknown keys: model'),
    (HEAD.replace('"romcom"', '3'), '"suite" must be a text')])
def test_bad_files(tmp_path, content, why):
    (f := tmp_path/'s.responses.jsonl').write_text(content)
    with pytest.raises(DataError) as e: parse_responses(f)
    assert why in str(e.value) and str(f) in str(e.value)


def test_responses_to_something_else_are_refused(tmp_path):
    respond(Echo(), ask(5), 's', 'romcom', data_sha256='a'*64, root=tmp_path)
    read = lambda **kw: read_responses('echo', 's', 'romcom', root=tmp_path, **kw)
    assert read(prompts=ask(5), data_sha256='a'*64).texts and read_responses('other', 's', 'romcom', root=tmp_path) is None
    with pytest.raises(DataError, match='made on other data'): read(data_sha256='b'*64)
    with pytest.raises(DataError, match='other prompts'): read(prompts=[p._replace(messages=({'role': 'user', 'content': '?'},)) for p in ask(5)])
    path = responses_path('echo', 's', 'romcom', root=tmp_path)
    path.write_text('\n'.join(path.read_text().split('\n')[:-2]))
    with pytest.raises(DataError, match="id 'p0004': 1 of 5 prompts have no line"): read(prompts=ask(5))
    assert respond(Echo(), ask(5), 's', 'romcom', data_sha256='a'*64, root=tmp_path) == 'computed'     # half a file is not kept


@pytest.mark.parametrize('got, why', [(['a'], 'returned 1 for 2 prompts'), ('ab', 'returned str for 2'), (['a', None], "id 'p0001': toy returned NoneType"), (None, 'NoneType')])
def test_bad_generators(got, why):
    with pytest.raises(DataError, match=why): check_texts(got, ask(2), 'toy')


def test_prompts_must_be_there_once(tmp_path):
    with pytest.raises(DataError, match='no prompts'): respond(Echo(), [], 's', 'romcom', root=tmp_path)
    with pytest.raises(DataError, match="id 'p0000': this prompt id stands twice"): respond(Echo(), ask(1)*2, 's', 'romcom', root=tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_digest_follows_ids_messages_and_order():
    p = ask(3)
    assert len({prompts_digest(x) for x in (p, p[::-1], p[:2], [p[0]._replace(id='q'), *p[1:]])}) == 4 and prompts_digest(p) == prompts_digest([x._replace(fields={}) for x in p])
