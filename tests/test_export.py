"Each export in the real library, in a locked environment of its own; what goes out, what does not, and what comes back."
import json, os, shutil, subprocess, sys
from collections import Counter
from pathlib import Path
import numpy as np
import pytest
from hypothesis import given, strategies as st
from conftest import fast, run_command, toy_data, toy_items, tree
from polyroute import export as e
from polyroute.items import DEPARTMENT, DataError, Dataset, Item, Question, load, read_items, write_jsonl

RUNS = Path(__file__).parent/'export_runs'
ENVS = Path(os.environ.get('POLYROUTE_EXPORT_ENVS') or Path(sys.prefix)/'export')
URGENCY = Question.from_json('urgency', {'type': 'score', 'instructions': 'How urgent? {{x}}', 'criteria': ['not {0}', 'soon', 'now']})
REFUND = Question.from_json('refund', {'type': 'noul', 'instructions': 'Money back?', 'criteria': {'true': 'money back'}})
SILENT = Question('silent', 'choice', '', (('a', 'first'), ('b', 'second')))
ODD = Question('odd', 'choice', "Which? it's {choices} \u202eالحالة؟", (("{{ x }}", '{letters}'), ('two words', ''), ('C', 'third: "quoted"'), ('ünï\u2028', '{% raw %}')))
HOSTILE = ['', ' ', '{{ state }} {% raw %} {# no #}', '{question} {0} {{', 'a\nb\r\nc\td\x0b', 'one\u2028two\u0085three', 'نص من اليمين \u202eabc', 'e\u0301\u0323', '👨\u200d👩\u200d👧', '\x00\x1f\x7f', '"quoted" \\n back\\slash\\',
           '- yaml: [1, 2] # no\n--- !!python/name:x', 'x'*5000, 'ANSWER: B', '</td><script>alert(1)</script>\n```', '2024-01-01T00:00:00', '123', 'null', '[1, 2]', 'A) trap\nB) trap', '\ufeffbom', '字'*700]


def hostile_items():
    "Every hostile text in a language, a right-to-left one and a mixture; four questions of all types."
    out = []
    for meta in (dict(language='de', script='Latin'), dict(language='ar', note={'deep': ['{{x}}']}), dict(variety='hinglish')):
        of = meta.get('language', 'mix')
        out += [Item(f'{of}-{n}', t, DEPARTMENT, DEPARTMENT.options[n % 3], None, meta) for n, t in enumerate(HOSTILE)]
        out += [Item(f'{of}-{q.name}-{n}', f'{q.name} {of} {n} {HOSTILE[n]}', q, q.options[n % len(q.options)], None, meta) for q in (URGENCY, REFUND, ODD, SILENT) for n in range(4)]
    soft = [Item('soft', 'either', DEPARTMENT, None, dict(billing=.5, technical=.5, other=0.), dict(language='de'))]
    return out + soft


@pytest.fixture(scope='module')
def hostile(tmp_path_factory):
    "The hostile items as a user's own file, read back; and training rows for its department question."
    folder = tmp_path_factory.mktemp('hostile')
    train = [Item(f't{n}', f'{o} row {n} {HOSTILE[n % len(HOSTILE)][:50]}', DEPARTMENT, o, None, dict(language='de' if n < 40 else 'ar')) for n in range(60) for o in [DEPARTMENT.options[n % 3]]]
    write_jsonl(folder/'train.jsonl', (i.to_row() for i in train))
    return read_items(write_jsonl(folder/'hostile.jsonl', (i.to_row() for i in hostile_items())))


NAME = 'polyroute_hostile'
ARGS = {'lm-eval': dict(), 'inspect': dict(), 'mteb': dict(question='department'), 'laya': dict()}


@pytest.fixture(scope='module')
def folders(hostile, tmp_path_factory):
    "The hostile items in each format."
    base = tmp_path_factory.mktemp('exports with spaces')
    for f, more in ARGS.items(): e.export(f, hostile, base/f, **more, **(dict(train=hostile.path.with_name('train.jsonl')) if f in ('lm-eval', 'mteb') else {}))
    versions = [Item(f'{n}-{v}', f'{"good" if n % 2 else "bad"} text {n} {v}', REFUND, ('false', 'true')[n % 2], None, dict(language='en', cluster=f's{n}')) for n in range(14) for v in 'abc']
    e.export('mteb', read_items(write_jsonl(base/'versions.jsonl', (i.to_row() for i in versions))), base/'folds')
    return base


@pytest.fixture(scope='module')
def started(folders, tmp_path_factory):
    "The runs in all environments that are there, started at once; a function that waits for one and returns what it told."
    base, going, heard = tmp_path_factory.mktemp('runs'), {}, {}
    calls = {'lm-eval': ('lm-eval', 'run_lm_eval.py', folders/'lm-eval', NAME), 'inspect': ('inspect', 'run_inspect.py', folders/'inspect', NAME), 'mteb': ('mteb', 'run_mteb.py', folders/'mteb', folders/'folds')}
    env = os.environ | dict(HF_HUB_OFFLINE='1', HF_DATASETS_OFFLINE='1', HF_HOME=str(base/'hf'), MTEB_CACHE=str(base/'mteb'), OMP_NUM_THREADS='1', OPENBLAS_NUM_THREADS='1', XDG_DATA_HOME=str(base/'xdg'), INSPECT_LOG_LEVEL='error', HF_DATASETS_DISABLE_PROGRESS_BARS='1')
    for run, (name, script, *args) in calls.items():
        python = ENVS/name/'bin'/'python'
        if not python.exists(): continue
        (base/run).mkdir()
        going[run] = subprocess.Popen([python, RUNS/script, base/run, *args], env=env, cwd=base, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def wait(run):
        name = calls[run][0]
        if run not in going:
            why = ENVS/f'{name}.missing'
            pytest.skip(f'the library could not be installed: {why.read_text().strip().splitlines()[0]}' if why.is_file() else f'no environment {name}: `make test` makes it, or tools/export_envs.py')
        if run not in heard: heard[run] = going[run].communicate(timeout=300)[0]
        assert going[run].returncode == 0, heard[run][-3000:]
        return json.loads((base/run/'told.json').read_text(encoding='utf-8')), base/run
    yield wait
    for p in going.values():
        if p.poll() is None: p.kill()
        p.communicate()


def kept(data): return [i for i in data if i.gold is not None]
def part_of(i): return i.meta.get('language') or i.meta.get('variety')


# In the real libraries

def test_laya_evals(started, folders, hostile, tmp_path, monkeypatch):     # the others have started and run meanwhile
    laya, torch = pytest.importorskip('laya'), pytest.importorskip('torch')
    from laya import evals, evals_cli
    from polyroute.encoders import checkpoint
    from polyroute.laya import Laya, tiny_encoder
    torch.set_num_threads(1)
    monkeypatch.setenv('POLYROUTE_CACHE', str(tmp_path/'cache'))
    made = checkpoint(tiny_encoder(tmp_path/'encoder', load('train').states[:200]))
    file = folders/'laya'/'dataset.jsonl'
    assert evals_cli.main(['validate', str(file)]) == 0
    data = evals.Dataset.from_jsonl(str(file))
    asked = [i for i in kept(hostile) if i.question.instructions]
    assert [x.state for x in data.examples] == [i.state for i in asked]
    report = evals.evaluate(laya.load(str(made), device='cpu'), data)
    (tmp_path/'report.json').write_text(json.dumps(report.to_json()), encoding='utf-8')
    p = e.import_results('laya', tmp_path/'report.json', hostile, 'tiny')
    assert list(p.ids) == [i.id for i in asked]
    ours = Laya(made, device='cpu')
    for q, ix in p.data.by_question():
        np.testing.assert_allclose(p.probs[ix][:, :len(q.options)], ours.predict([p.data[i].state for i in ix], q), atol=2e-4)      # it rounds to four digits
    choice = np.array([i.question.type == 'choice' for i in p.data])
    assert report.overall['choice_accuracy'] == pytest.approx(p.hit[choice].mean())
    assert report.overall['noul_accuracy'] == pytest.approx(p.hit[[i.question.type == 'noul' for i in p.data]].mean())
    assert {k: v['n'] if 'n' in v else v.get('count') for k, v in report.slices['language'].items()}.keys() == {'de', 'ar', 'hinglish'}


def test_lm_evaluation_harness(started, hostile):
    told, out = started('lm-eval')
    items = {i.id: i for i in hostile}
    assert told['counts'] == {f'{NAME}_{p}': n for p, n in Counter(map(part_of, kept(hostile))).items()}
    p = e.import_results('lm-eval', out, hostile, 'tiny')
    assert list(p.ids) == [i.id for i in kept(hostile)] and len(np.unique(p.probs.round(6))) > 30
    for name, r in told['results'].items():
        mine = p if name == NAME else p.select(np.array([f'{NAME}_{part_of(i)}' == name for i in p.data]))
        assert r['acc,none'] == pytest.approx(mine.hit.mean(), abs=1e-12) and r['sample_len'] == len(mine)
    # the model was asked exactly this, and nothing was rendered
    want = Counter((e.prompt(i.question, i.state) + '\nANSWER:', f' {e.mark(n)}') for i in kept(hostile) for n in range(len(i.question.options)))
    assert Counter(map(tuple, told['asked'])) == want
    docs = [row['doc'] for f in out.glob('**/samples_*.jsonl') for row in map(json.loads, f.read_text(encoding='utf-8').split('\n')[:-1])]
    assert {d['id']: d['state'] for d in docs} == {i.id: i.state for i in kept(hostile)}
    assert all(json.loads(d['meta']) == items[d['id']].meta and d['options'][d['answer']] == items[d['id']].gold for d in docs)
    # few-shot examples are training rows
    train = {i.state for i in read_items(hostile.path.with_name('train.jsonl'))}
    shown = [json.loads(l) for l in told['few'].split('\n') if l.startswith('"')]
    assert len(shown) == 3 and set(shown[:2]) <= train and shown[2] not in train


def test_inspect(started, hostile):
    told, out = started('inspect')
    whole, right, unread = told['whole'], [], 0
    for i in kept(hostile):
        asked = e.prompt(i.question, i.state)
        said = told['asked'][asked]                                   # word for word
        chosen = {'ANSWER: A': 0, 'answer: b.': 1, 'Let me see.\nANSWER: A': 0}.get(said)
        unread += chosen is None
        right.append(chosen is not None and i.question.options[chosen] == i.gold)
    assert whole['items'] == len(right) and 0 < unread < len(right) and 0 < sum(right) < len(right)
    assert whole['metrics']['choice accuracy'] == pytest.approx(np.mean(right))
    for part in ('de', 'ar', 'hinglish'): assert whole['metrics'][f'choice {part}'] == pytest.approx(np.mean([r for r, i in zip(right, kept(hostile)) if part_of(i) == part]))
    assert told['part']['items'] == sum(part_of(i) == 'ar' for i in kept(hostile)) and told['part']['metrics']['choice accuracy'] == pytest.approx(whole['metrics']['choice ar'])
    assert whole['texts'] == {i.id: i.state for i in kept(hostile)} and whole['about']['sha256'] == hostile.sha256
    with pytest.raises(DataError, match=f'{unread} of {len(right)} answers could not be read'): e.import_results('inspect', out/'whole', hostile)
    p = e.import_results('inspect', out/'whole', hostile, unread='even')
    assert p.header.labels_only and (p.probs.max(1) == 1).sum() == len(right) - unread
    assert p.hit[p.probs.max(1) == 1].sum() == sum(right)


def by_hand(train, test, seed=42):
    "Accuracy and predictions of ten logistic regressions on eight rows of each option, drawn as MTEB draws them."
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.linear_model import LogisticRegression
    x = [HashingVectorizer(analyzer='char', ngram_range=(1, 2), n_features=64).transform([r['text'] for r in rows]).toarray() for rows in (train, test)]
    order, said = list(range(len(train))), []
    for _ in range(10):
        np.random.RandomState(seed).shuffle(order)
        n, use = Counter(), []
        for i in order:
            if n[train[i]['label']] < 8: use.append(i); n[train[i]['label']] += 1
        said.append(LogisticRegression(max_iter=100, random_state=seed).fit(x[0][use], [train[i]['label'] for i in use]).predict(x[1]))
    return np.mean(np.array(said) == [r['label'] for r in test]), np.array(said)


def rows(path): return [json.loads(l) for l in path.read_text(encoding='utf-8').split('\n')[:-1]]


def test_mteb(started, hostile, folders):
    told, out = started('mteb')
    name = 'PolyRouteHostileDepartment'
    asked = [i for i in kept(hostile) if i.question == DEPARTMENT]
    where, votes = folders/'mteb'/'department', {}
    assert set(told['scores'][name]) == {'de', 'ar', 'hinglish'} and told['scores'][name]['hinglish']['languages'] == ['eng-Latn', 'hin-Latn']
    for subset, s in told['scores'][name].items():
        train, test = rows(where/('train.de.jsonl' if subset == 'de' else 'train.jsonl')), rows(where/f'test.{subset}.jsonl')
        accuracy, said = by_hand(train, test)
        assert s['accuracy'] == pytest.approx(accuracy, abs=1e-12)
        assert told['seen'][f'{name} {subset} test'] == [r['text'] for r in test] == [i.state for i in asked if part_of(i) == subset]
        votes |= {r['id']: [(said[:, n] == k).mean() for k in range(3)] for n, r in enumerate(test)}
    p = e.import_results('mteb', out/'predictions', hostile, exported=folders/'mteb')
    assert list(p.ids) == [i.id for i in asked]
    np.testing.assert_allclose(p.probs, [votes[i] for i in p.ids])


def test_mteb_folds_share_no_source(started, folders):
    told, out = started('mteb')
    scores = told['scores']['PolyRouteVersionsRefund']
    data = read_items(folders/'versions.jsonl')
    source, tested = {i.id: i.meta['cluster'] for i in data}, []
    for subset, s in scores.items():
        train, test = (rows(folders/'folds'/'refund'/f'{f}.{subset}.jsonl') for f in ('train', 'test'))
        assert not {source[r['id']] for r in train} & {source[r['id']] for r in test} and len(train) + len(test) == len(data)
        assert s['accuracy'] == pytest.approx(by_hand(train, test)[0], abs=1e-12)
        tested += [r['id'] for r in test]
    assert len(scores) == 5 and sorted(tested) == sorted(data.ids)
    p = e.import_results('mteb', out/'predictions', data, exported=folders/'folds')
    assert list(p.ids) == list(data.ids) and p.probs.shape == (42, 2)


def test_the_versions_are_those_of_the_lock_files():
    root = Path(__file__).parents[1]
    for name, said in e.TESTED.items():
        if name == 'laya': continue
        assert said.replace('[hf]', '') in (root/'tools'/'export'/f'{name}.txt').read_text().split('\n') and f"'{said}'" in (root/'tools'/'export_envs.py').read_text()


# What goes out

def count(folder, format):
    "Items of each slice that an export's own files hold."
    if format == 'lm-eval': return Counter(r['part'] for f in (folder/'data').glob('*.jsonl') for r in rows(f))
    if format == 'inspect': return Counter(r['metadata']['part'] for r in rows(folder/'samples.jsonl'))
    if format == 'mteb': return Counter({f.name.split('.')[1]: len(rows(f)) for f in folder.glob('*/test.*.jsonl')})
    return Counter(r['language'] for r in rows(folder/'dataset.jsonl'))


@pytest.mark.parametrize('format', e.FORMATS)
@pytest.mark.parametrize('split', ['ml_test', 'mix_test', 'ml_hard'])
def test_counts_per_language(format, split, tmp_path):
    data = load(split)
    about = e.export(format, data, tmp_path/'x').about
    want = Counter(map(part_of, data))
    assert count(tmp_path/'x', format) == want == {s['value']: s['items'] for s in about['parts'].values()}
    assert about['items'] == len(data) and about['left_out'] == {} and about['sha256'] == data.sha256
    assert sorted(about['files']) == sorted(f for f in tree(tmp_path/'x') if f != 'export.json')


@pytest.mark.parametrize('format', ['lm-eval', 'inspect', 'laya'])
def test_the_same_bytes_again_and_no_path_of_this_machine(format, hostile, tmp_path):
    for to in ('a', 'b'): e.export(format, hostile, tmp_path/to)
    a = tree(tmp_path/'a')
    assert a == tree(tmp_path/'b') and not any(str(tmp_path).encode() in t for t in a.values())


def test_what_is_left_out_is_said(hostile, tmp_path):
    about = e.export('inspect', hostile, tmp_path/'x').about
    assert about['left_out'] == {'several right answers (a soft gold)': ['soft']}
    assert '1 item left out: several right answers' in (tmp_path/'x'/'README.md').read_text(encoding='utf-8')
    about = e.export('mteb', hostile, tmp_path/'m').about                      # no training rows but for the department question, and few sources
    assert set(about['tasks']) == {'department', 'refund', 'silent'} and len(about['left_out']['no training rows for the question, and too few sources to cross-fit it']) == 24
    assert about['items'] + sum(map(len, about['left_out'].values())) == len(hostile)
    about = e.export('laya', hostile, tmp_path/'l').about
    assert len(about['left_out']['the question has no instructions, and laya answers none without']) == 12 and len(rows(tmp_path/'l'/'dataset.jsonl')) == about['items'] == len(hostile) - 13
    with pytest.raises(DataError, match='has no row that asks'): e.export('mteb', hostile, tmp_path/'n', question='odd', train='train_ml')


def test_wordings_of_one_question_are_one_task(tmp_path):
    ask = lambda words, kind='choice': Question('tone', kind, words, (('true', ''), ('false', ''))[::1 if kind == 'choice' else -1])
    data = lambda kind: Dataset('x', [Item(f'{w}{n}', f'text {n}', ask(w, kind), ('true', 'false')[n % 2], None, dict(language='en', cluster=f's{n}')) for n in range(12) for w in 'abc'])
    assert list(e.mteb_files(e.plan(data('choice')))[1]['tasks']) == ['tone']
    assert list(e.mteb_files(e.plan(data('noul')))[1]['tasks']) == ['tone_1', 'tone_2', 'tone_3']     # other words, another question
    assert e.plan(e.read_data('toxicity', 'romcom')).data.by_question()[0][1].size == 20 and sum(t.count('\n') for f, t in e.mteb_files(e.plan(e.read_data('toxicity', 'romcom')))[0].items() if '/test.' in f) == 260


@pytest.mark.parametrize('format', e.FORMATS)
def test_half_a_surrogate_pair_is_refused(format, tmp_path):
    data = Dataset('x', [*toy_items(30), Item('half', 'a\ud800b', DEPARTMENT, 'other')])
    with pytest.raises(DataError, match="half.*half of a surrogate pair"): e.export(format, data, tmp_path/'x')
    assert not (tmp_path/'x').exists()


def test_a_released_file_says_who_wrote_it_and_a_users_does_not(hostile, tmp_path):
    e.export('laya', 'mix_test', tmp_path/'a'); e.export('laya', hostile, tmp_path/'b', licence='cc-by-4.0')
    a, b = ((tmp_path/x/'README.md').read_text(encoding='utf-8') for x in 'ab')
    assert 'Claude (Anthropic)' in a and 'same model family' in a and 'apache-2.0' in a
    assert 'Claude' not in b and 'cc-by-4.0' in b and hostile.sha256 in b


def test_keys_as_answers(hostile, tmp_path):
    e.export('lm-eval', hostile, tmp_path/'x', answers='keys', descriptions=False)
    for f in (tmp_path/'x'/'data').glob('*.jsonl'):
        for r in rows(f): assert r['choices'] == r['options'] and f"- {r['options'][0]}\n" in r['prompt']
    assert 'acc_norm' in (tmp_path/'x'/'_common_yaml').read_text()
    with pytest.raises(DataError, match='only lm-eval'): e.export('inspect', hostile, tmp_path/'y', answers='keys')


@pytest.mark.parametrize('format', e.FORMATS)
def test_hostile_languages_stay_in_the_folder(format, tmp_path):
    odd = ['../../x', 'fewshot', 'no', '{{x}}', 'ü', 'default', '']
    data = Dataset('../name "of', [Item(f'{l}{n}', f'text {n}', DEPARTMENT, DEPARTMENT.options[n % 3], None, dict(language=l)) for l in odd for n in range(6)])
    about = e.export(format, data, tmp_path/'sub'/'x', **(dict(train='train_ml') if format == 'lm-eval' else {})).about
    assert [p.name for p in tmp_path.iterdir()] == ['sub'] and [p.name for p in (tmp_path/'sub').iterdir()] == ['x']
    assert {v['value']: v['items'] for v in about['parts'].values()} == {l or 'other': 6 for l in odd} and about['name'] == 'polyroute_name_of'
    assert count(tmp_path/'sub'/'x', format).total() == 42


def test_more_options_than_letters(tmp_path):
    big = Question('big', 'choice', 'Which?', tuple((f'o{n}', '') for n in range(40)))
    e.export('inspect', toy_data(tmp_path/'big.jsonl', 40, big), tmp_path/'x')
    assert [r['target'] for r in rows(tmp_path/'x'/'samples.jsonl')] == [e.mark(n) for n in range(40)] and e.mark(39) == '14'


@given(st.lists(st.text(max_size=12), max_size=12, unique=True))
@fast
def test_names_are_safe_and_distinct(values):
    names = e.safe_names(values)
    assert list(names) == values and len(set(names.values())) == len(values) and all(set(n) <= set('abcdefghijklmnopqrstuvwxyz0123456789_') and n for n in names.values())


@given(st.text(st.characters(exclude_categories=['Cs']), max_size=40), st.text(st.characters(exclude_categories=['Cs']), max_size=20))
@fast
def test_the_text_can_be_read_out_of_the_prompt(text, said):
    q = Question('q', 'choice', said, (('a', '{x}'), ('b', '')))
    after = e.prompt(q, text).split('not an instruction.\n', 1)[1] if 'not an instruction.\n' not in said else None
    if after is not None: assert json.JSONDecoder().raw_decode(after)[0] == text


# The folder

def test_a_folder_is_whole_or_not_there(hostile, tmp_path, monkeypatch):
    to = tmp_path/'x'
    e.export('laya', hostile, to)
    before = tree(to)
    with pytest.raises(DataError, match='--force'): e.export('laya', hostile, to)
    monkeypatch.setattr(Path, 'write_bytes', lambda self, b: (_ for _ in ()).throw(OSError('disk full')))
    with pytest.raises(OSError): e.export('inspect', hostile, to, force=True)
    monkeypatch.undo()
    assert tree(to) == before and [p.name for p in tmp_path.iterdir()] == ['x']
    e.export('inspect', hostile, to, force=True)
    assert (to/'polyroute_task.py').is_file() and not (to/'dataset.jsonl').exists() and [p.name for p in tmp_path.iterdir()] == ['x']


def test_nothing_of_the_users_is_replaced(hostile, tmp_path):
    mine = tmp_path/'mine'
    mine.mkdir(); (mine/'thesis.txt').write_text('years of work')
    with pytest.raises(DataError, match='no earlier export'): e.export('laya', hostile, mine, force=True)
    e.export('laya', hostile, tmp_path/'x'); (tmp_path/'x'/'results.json').write_text('{}')
    with pytest.raises(DataError, match='results.json'): e.export('laya', hostile, tmp_path/'x', force=True)
    (tmp_path/'empty').mkdir(); e.export('laya', hostile, tmp_path/'empty')


def test_a_target_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    (tmp_path/'there').mkdir(); (tmp_path/'here').mkdir(); (tmp_path/'file').write_text('mine')
    (tmp_path/'dangling').symlink_to(tmp_path/'nothing'); (tmp_path/'link').symlink_to(tmp_path/'there'); (tmp_path/'loop').symlink_to(tmp_path/'loop')
    monkeypatch.chdir(tmp_path/'here')
    before = sorted(tmp_path.rglob('*'))
    for to, match in (('.', 'name a new folder'), ('..', 'name a new folder'), ('../here', 'name a new folder'), (tmp_path, 'name a new folder'), ('../dangling', 'leads to no folder'), ('../dangling/x', 'leads to no folder'), ('../link', 'name the folder that it leads to'),
                      ('../file', 'this is a file'), ('../file/x/y', 'below a file'), ('../loop', 'symbolic link|loop')):
        for force in (False, True):
            with pytest.raises(DataError, match=match): e.export('laya', 'mix_test', to, force=force)
    assert sorted(tmp_path.rglob('*')) == before and (tmp_path/'file').read_text() == 'mine'
    e.export('laya', 'mix_test', '../link/x')                                   # below a link to a folder
    assert (tmp_path/'there'/'x'/'dataset.jsonl').is_file()
    assert 'name a new folder' in run_command('export', 'laya', 'mix_test', '--to', '.', code=1)


def test_a_licence_is_one_line(hostile, tmp_path):
    for licence in ('mit\n\n# Approved', 'mit\u2028x', 'a\x1bb'):
        with pytest.raises(DataError, match='on one line'): e.export('laya', hostile, tmp_path/'x', licence=licence)
    assert not (tmp_path/'x').exists()


def test_the_readme_says_what_is_ours_and_what_it_was_tried_with(hostile, tmp_path):
    from importlib import metadata
    e.export('laya', hostile, tmp_path/'a'); e.export('laya', 'mix_test', tmp_path/'b')
    theirs, ours = ((tmp_path/n/'README.md').read_text(encoding='utf-8') for n in 'ab')
    assert 'The data set `hostile` for laya.evals' in theirs and "PolyRoute's" not in theirs and "PolyRoute's `mix_test` for laya.evals" in ours
    try: assert f'laya=={metadata.version("laya")}' in ours
    except metadata.PackageNotFoundError: assert 'tried with laya.' in ours


# Back again

def samples(data, scores): return [dict(doc=e.lm_eval_row(e.plan(data), i, 'x'), filtered_resps=[[repr(float(v)), 'False'] for v in s]) for i, s in zip(data, scores)]


def test_results_of_something_else_are_refused(tmp_path):
    data, other = toy_data(tmp_path/'a.jsonl', 6), toy_data(tmp_path/'b.jsonl', 6, state=lambda i: f'other {i}')
    file = tmp_path/'samples_x.jsonl'
    for found, match in [(samples(other, [[0, 0, 0]]*6), 'not of an item'), (samples(data, [[0, 0, 0]]*5), '1 of 6 items have no result'), (samples(data, [[0, 0]]*6), '2 finite log-likelihoods for 3'),
                         (samples(data, [[0, 0, float('nan')]]*6), 'finite'), ([dict(doc=5)], 'not of an item'), ([{k: v for k, v in s.items() if k == 'doc'} for s in samples(data, [[0, 0, 0]]*6)], 'needs a log-likelihood')]:
        write_jsonl(file, found)
        with pytest.raises(DataError, match=match): e.import_results('lm-eval', file, data)
    write_jsonl(file, samples(data, [[-1e5, -1e5 - 1, -2e5]]*6))
    np.testing.assert_allclose(e.import_results('lm-eval', file, data).probs[0], [1/(1 + np.exp(-1)), 1/(1 + np.e), 0])
    with pytest.raises(DataError, match='no file'): e.import_results('inspect', tmp_path/'nowhere', data)
    (tmp_path/'x.eval').write_bytes(b'PK\x03\x04')
    with pytest.raises(DataError, match='--log-format json'): e.import_results('inspect', tmp_path/'x.eval', data)
    with pytest.raises(DataError, match='no ids'): e.import_results('mteb', tmp_path, data)
    for format, name, what in (('inspect', 'a.json', [1]), ('inspect', 'a.json', dict(samples=[5])), ('laya', 'b.json', dict(cases=[5]*6)), ('laya', 'b.json', dict(cases=[dict(qid='department', expected='billing')]*6))):
        (tmp_path/name).write_text(json.dumps(what))
        with pytest.raises(DataError): e.import_results(format, tmp_path/name, data)


def write_lm_eval(folder, data, scores):
    write_jsonl(folder/'samples_x.jsonl', samples(data, scores))
    return folder/'samples_x.jsonl'


def write_inspect(file, data, answers, **log):
    file.write_text(json.dumps(dict(samples=[dict(id=i.id, input=e.ask(i.question, i.state), scores=dict(choice=dict(answer=a))) for i, a in zip(data, answers)], **log)))
    return file


def test_the_predictions_of_another_system_are_not_overwritten(board_home, tmp_path):
    data, root = load('ml_test'), tmp_path/'out'
    before = tree(root)
    file = write_lm_eval(tmp_path, data, np.zeros((240, 3)))
    said = run_command('import-results', 'lm-eval', file, 'ml_test', '--slug', 'best', code=1)
    assert "'best' belongs to another system" in said and tree(root) == before
    assert 'belongs to another system' in run_command('import-results', 'lm-eval', file, 'ml_test', '--slug', 'tfidf-all', '--out', tmp_path/'new', code=1)      # a registered one
    run_command('import-results', 'lm-eval', file, 'ml_test', '--slug', 'mine')
    run_command('import-results', 'lm-eval', file, 'ml_test', '--slug', 'mine')                         # its own may be replaced
    assert {f: b for f, b in tree(root).items() if not f.startswith('systems/mine/')} == before
    for slug in ('Bad_Slug', '', '../x', 'x'*51): assert 'a slug is made of' in run_command('import-results', 'lm-eval', file, 'ml_test', '--slug', slug, code=1)


def test_results_on_two_splits_are_one_system_and_can_be_submitted(home, tmp_path):
    from polyroute.submissions import read_submission
    r = np.random.default_rng(0)
    for split, more in (('ml_test', ['--exposure', 'none', '--track', 'A', '--name', 'My model']), ('mix_test', [])):
        data = load(split)
        run_command('import-results', 'lm-eval', write_lm_eval(tmp_path, data, r.normal(size=(len(data), 3))), split, '--slug', 'mine', '--out', tmp_path/'o', *more)
    s = read_submission(tmp_path/'o'/'systems'/'mine')
    assert {p.header.split for p in s.predictions.values()} == {'ml_test', 'mix_test'} and {p.header.version for p in s.predictions.values()} == {s.card.version}
    assert (s.card.name, s.card.track, s.card.exposure) == ('My model', 'A', 'none')                    # what is not said again stays
    data = load('mix_test')
    run_command('import-results', 'lm-eval', write_lm_eval(tmp_path, data, np.tile([0, 9, 0], (len(data), 1))), 'mix_test', '--slug', 'mine', '--out', tmp_path/'o')
    assert (read_submission(tmp_path/'o'/'systems'/'mine').predictions['mix_test'].probs.argmax(1) == 1).all()      # a second import is not taken for the first


def test_one_text_may_have_two_answers(tmp_path):
    data = read_items(write_jsonl(tmp_path/'d.jsonl', (Item(f'i{n}', 'the same text', DEPARTMENT, 'billing', None, {}).to_row() for n in range(70))))
    r = np.random.default_rng(1).permutation(70)
    p = e.import_results('inspect', write_inspect(tmp_path/'log.json', [data[n] for n in r], ['ABC'[n % 3] for n in r]), data, 'sampler')
    e.record(p, tmp_path/'o')
    from polyroute.predictions import frozen
    got = frozen('sampler', 'd', tmp_path/'o', data)
    assert got.header.labels_only and list(got.probs.argmax(1)) == [n % 3 for n in range(70)]


def test_an_export_of_something_else_is_refused(tmp_path):
    data, other = toy_data(tmp_path/'a.jsonl', 9), toy_data(tmp_path/'b.jsonl', 9)
    (tmp_path/'sub').mkdir(); (tmp_path/'empty').mkdir()
    changed = toy_data(tmp_path/'sub'/'a.jsonl', 9, meta=lambda i: {})
    for f in ('lm-eval', 'inspect'): e.export(f, data, tmp_path/f)
    file = write_lm_eval(tmp_path, data, np.zeros((9, 3)))
    assert len(e.import_results('lm-eval', file, data, exported=tmp_path/'lm-eval')) == 9
    for folder, of, match in (('inspect', data, 'an export for inspect'), ('lm-eval', other, "data set 'a', not of 'b'"), ('lm-eval', changed, 'other data of this name.*SHA-256'), ('empty', data, 'no export.json')):
        with pytest.raises(DataError, match=match): e.import_results('lm-eval', file, of, exported=tmp_path/folder)
    for folder, match in (('inspect', 'an export for inspect'), ('empty', 'no export.json')):
        with pytest.raises(DataError, match=match): e.import_results('mteb', tmp_path, data, exported=tmp_path/folder)
    (tmp_path/'empty'/'export.json').write_text('[]')
    with pytest.raises(DataError, match='not what polyroute export writes'): e.import_results('mteb', tmp_path, data, exported=tmp_path/'empty')
    # and without the folder, where the results carry the texts
    texts = toy_data(tmp_path/'c.jsonl', 9, state=lambda i: f'other {i}')
    with pytest.raises(DataError, match='not of an item'): e.import_results('inspect', write_inspect(tmp_path/'log.json', texts, 'A'*9), data)
    with pytest.raises(DataError, match='on other data'): e.import_results('inspect', write_inspect(tmp_path/'log.json', data, 'A'*9, eval=dict(metadata=dict(sha256=changed.sha256))), data)
    case = lambda i, **more: dict(qid='department', expected=i.gold, tags=[], answer=dict(probabilities={o: 1/3 for o in DEPARTMENT.options})) | more
    for more in (dict(), dict(tags=['script:Latin'])):
        (tmp_path/'report.json').write_text(json.dumps(dict(cases=[case(i, **more) for i in data])))
        if not more: assert len(e.import_results('laya', tmp_path/'report.json', data)) == 9
        else:
            with pytest.raises(DataError, match='not of the item that stands there'): e.import_results('laya', tmp_path/'report.json', data)


def test_a_fault_of_the_results_is_named(tmp_path):
    data = toy_data(tmp_path/'a.jsonl', 6)
    logs = tmp_path/'logs'
    logs.mkdir(); (logs/'x.eval').write_bytes(b'PK')
    with pytest.raises(DataError, match='--log-format json'): e.import_results('inspect', logs, data)
    with pytest.raises(DataError, match="status is 'error' .no such model."): e.import_results('inspect', write_inspect(tmp_path/'log.json', data, 'A'*6, status='error', error=dict(message='no such model')), data)
    with pytest.raises(DataError, match="status is 'cancelled'"): e.import_results('inspect', write_inspect(tmp_path/'log.json', data, 'A'*6, status='cancelled', error=None), data)
    assert len(e.import_results('inspect', write_inspect(tmp_path/'log.json', data, 'A'*6, status='success'), data)) == 6
    with pytest.raises(DataError, match='folder.*--json'): e.import_results('laya', logs, data)
    with pytest.raises(DataError, match='no such file'): e.import_results('laya', tmp_path/'nowhere.json', data)


BAD = dict(nan=[float('nan'), .5, .5], infinite=[float('inf'), 0, 0], negative=[-.2, .6, .6], zero=[0, 0, 0], low=[.2, .1, .1], high=[.8, .8, .4])

def laya_report(path, data, bad, n=4):
    rows = [[.2, .5, .3]]*n + [bad] + [[.2, .5, .3]]*(len(data) - n - 1)
    path.write_text(json.dumps(dict(cases=[dict(qid='department', expected=i.gold, tags=e.tags_of(i), answer=dict(probabilities=dict(zip(DEPARTMENT.options, r)))) for i, r in zip(data, rows)])))
    return path

@pytest.mark.parametrize('bad', BAD)
def test_what_is_no_probability_is_refused_before_anything_is_written(home, bad):
    data = load('ml_test')
    said = run_command('import-results', 'laya', laya_report(home/'r.json', data, BAD[bad]), 'ml_test', '--slug', 'mine', code=1)
    assert "r.json, id 'i004'" in said and not (home/'out'/'systems').exists()
    run_command('import-results', 'laya', laya_report(home/'r.json', data, [.3333, .3333, .3333]), 'ml_test', '--slug', 'mine')      # rounding is none of it
    from polyroute.predictions import frozen
    assert frozen('mine', 'ml_test').probs[4].tolist() == [.3333]*3, 'and nothing is rescaled'

@pytest.mark.parametrize('bad', BAD)
@pytest.mark.parametrize('large', [False, True])
def test_nothing_is_recorded_that_could_not_be_read(home, monkeypatch, bad, large):
    from polyroute import predictions as pr
    if large: monkeypatch.setattr(pr, 'LARGE', 10)
    data = load('ml_test')
    probs = np.tile([.2, .5, .3], (len(data), 1)); probs[4] = BAD[bad]
    p = pr.Predictions(pr.header_for('mine', data), data, probs)
    with pytest.raises(DataError, match="id 'i004'"): e.record(p)
    assert not (home/'out'/'systems').exists()
    probs[4] = [.2, .5, .3]
    for more, why in ((dict(ms=np.where(np.arange(240) == 4, -1., 1.)), "id 'i004'"), (dict(probs=probs[:-1]), '239 rows of probabilities for 240 items'), (dict(data=Dataset('ml_test', data.items, 'f'*64)), 'other data')):
        with pytest.raises(DataError, match=why): e.record(pr.replace(p, **more))
    e.record(pr.replace(p, ms=np.where(np.arange(240) == 4, np.nan, 1.)))               # a time that was not taken
    assert np.isnan(pr.frozen('mine', 'ml_test').ms).tolist() == [i == 4 for i in range(240)]

def test_a_class_that_is_no_option_is_named(tmp_path):
    data = toy_data(tmp_path/'a.jsonl', 6)
    for n, votes in ((0, [7]), (1, [-1])):
        folder = tmp_path/str(n); (folder/'e'/'t').mkdir(parents=True)
        about = dict(format='mteb', data='a', sha256=data.sha256, left_out={}, tasks=dict(t=dict(metadata=dict(name='T', eval_langs=dict(x=['eng-Latn'])))))
        (folder/'e'/'export.json').write_text(json.dumps(about))
        write_jsonl(folder/'e'/'t'/'test.x.jsonl', (dict(id=i.id) for i in data))
        (folder/'T_predictions.json').write_text(json.dumps(dict(x=dict(test=[[0, 1, 2, 0, *votes, 1]]))))
        with pytest.raises(DataError): e.import_results('mteb', folder/'T_predictions.json', data, exported=folder/'e')

def test_a_key_that_no_item_has_is_no_part(hostile):
    with pytest.raises(DataError, match='name no lang; there are: language'): e.parts(hostile, 'lang')


# CLI

def test_a_run_that_was_stopped_is_to_be_finished(board_home):
    folder = board_home/'out'/'systems'/'best'
    (folder/'en_test.jsonl.partial').write_text('')
    said = run_command('submit', folder, '--out', board_home/'ready', code=1)
    assert 'en_test.jsonl.partial: this was left by a run that was stopped: finish it with polyroute evaluate, or remove it' in said

def test_examples_write_to_a_folder_of_ones_own(hostile, tmp_path):
    example = [l for l in run_command('import-results', '--help').split('\n') if l.strip().startswith('polyroute import-results')]
    assert len(example) == 2 and all('--out my_outputs' in l for l in example)
    for f, more in ARGS.items():
        e.export(f, hostile, tmp_path/f, **more)
        text = (tmp_path/f/'README.md').read_text(encoding='utf-8')
        assert f'import-results {f} ' in text and '--slug my-model --out my_outputs --exported FOLDER\n' in text
        assert ('is their vote' in text) == (f == 'mteb')
    e.export('laya', 'nli', tmp_path/'suite', suite='romcom')
    assert '--exported FOLDER --suite romcom\n' in (tmp_path/'suite'/'README.md').read_text(encoding='utf-8')


def test_commands(home, hostile, tmp_path):
    told = json.loads(run_command('export', 'lm-eval', 'ml_test', '--to', tmp_path/'x', '--json'))
    assert told['items'] == 240 and told['path'] == str(tmp_path/'x')
    assert 'already' in run_command('export', 'lm-eval', 'ml_test', '--to', tmp_path/'x', code=1)
    said = run_command('export', 'inspect', hostile.path, '--to', tmp_path/'x', '--force')
    assert '1 item left out: several right answers' in said and 'de 38, ar 38, hinglish 38' in said
    assert 'no data set' in run_command('export', 'laya', 'nothing', '--to', tmp_path/'y', code=1)
    data = load('ml_test')
    write_jsonl(tmp_path/'samples_a.jsonl', samples(data, np.random.default_rng(0).normal(size=(240, 3))))
    said = run_command('import-results', 'lm-eval', tmp_path/'samples_a.jsonl', 'ml_test', '--slug', 'from-harness', '--exposure', 'none', '--out', tmp_path/'out')
    assert '240 items' in said and (tmp_path/'out'/'systems'/'from-harness'/'system.json').is_file()
    assert 'from-harness' in run_command('submit', tmp_path/'out'/'systems'/'from-harness', '--out', tmp_path/'ready', '--root', tmp_path/'out')
