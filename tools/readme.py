"Write README.md from nbs/index.ipynb, or with --check say whether it is in step."
import base64, os, re, sys
from pathlib import Path
import yaml
from nbdev.config import get_config
from pages import processed

ROOT = Path(__file__).resolve().parents[1]
FIGURES = 'index_files'

def notebook_links(
    text: str, # Markdown
    cfg, # nbdev's configuration
) -> str: # the same with links that work in a checkout
    "Point links to pages and to other notebooks at the notebook files."
    names = {re.sub(r'^\d+[a-z]?_', '', p.stem): p.name for p in cfg.nbs_path.glob('*.ipynb')}
    folder, base = cfg.nbs_path.name, re.escape(cfg.doc_host.rstrip('/') + cfg.doc_baseurl)
    def link(m): return f"]({folder}/{names[m[1]]}" if m[1] in names else m[0]
    text = re.sub(rf'\]\({base}/(?:\d+[a-z]?_)?(\w+)\.html(?:#[\w.-]+)?', link, text)
    return re.sub(r'\]\((?:\./)?(?:\d+[a-z]?_)?(\w+)\.ipynb', link, text)

def output(
    out: dict, # an output of a code cell
    name: str, # file stem for a figure
    files: dict, # path -> bytes, to which a figure is added
) -> str: # Markdown
    "Return one output as Markdown."
    join = lambda o: o if isinstance(o, str) else ''.join(o)
    block = lambda o: '    ' + o.rstrip().replace('\n', '\n    ')
    if out['output_type'] == 'stream': return block(join(out['text'])) if out.get('name') != 'stderr' else ''
    d = {k: join(v) for k, v in out.get('data', {}).items() if isinstance(v, (str, list))}
    if 'image/png' in d:
        files[f'{FIGURES}/{name}.png'] = base64.b64decode(d['image/png'])
        return f'![]({FIGURES}/{name}.png)'
    if 'text/markdown' in d: return d['text/markdown']
    if 'text/html' in d: return re.sub(r'<style.*?</style>\n?', '', d['text/html'], flags=re.S)    # a README shows the text of a style element
    return block(d.get('text/plain', ''))

def code_cell(
    cell, # a code cell, its directives still in place
    i: int, # its number, for the names of its figures
    files: dict, # path -> bytes
) -> list: # blocks of Markdown
    "Return the code and the outputs of a cell, as far as its directives show them."
    opts, body = re.match(r'((?:#\|.*(?:\n|$))*)(.*)', cell.source, re.S).groups()
    off = lambda key: re.search(rf'^#\|\s*(?:{key}|include):\s*false', opts, re.M)
    res = [] if off('echo') or not body.strip() else [f'```python\n{body.strip()}\n```']
    if not off('output'): res += [notebook_links(output(o, f'figure-{i}-{j}', files), get_config()) for j, o in enumerate(cell.get('outputs', []))]
    return res

def render() -> dict: # path in the repository -> bytes
    "Return README.md and its figures."
    cfg = get_config()
    files, blocks = {}, []
    for i, c in enumerate(processed(cfg.nbs_path/cfg.readme_nb).cells):
        if c.cell_type == 'raw':    # nbdev moved the title and the summary into front matter
            head = yaml.safe_load(c.source.strip().strip('-')) or {}
            if 'title' in head: blocks.append(f"# {head['title']}\n\n> {head.get('description', '')}")
        elif c.cell_type == 'code': blocks += code_cell(c, i, files)
        elif not c.source.startswith('<!-- WARNING'):
            text = re.sub(r'\s*\{#(?:eq|tbl|fig)-[\w-]+\}', '', c.source)
            blocks.append(notebook_links(re.sub(r'(?<![\w`\[])@(?:fig|tbl|eq)-[\w-]*\w', 'the docs', text), cfg))
    head = f'<!-- Written by tools/readme.py from {cfg.nbs_path.name}/{cfg.readme_nb}: edit that notebook. -->\n'
    text = head + '\n\n'.join(o.strip('\n') for o in blocks if o.strip()) + '\n'
    return {'README.md': text.encode(), **files}

def main():
    os.chdir(ROOT)
    files = render()
    old = {p.as_posix(): p.read_bytes() for p in [Path('README.md'), *Path(FIGURES).glob('*.png')] if p.exists()}
    if '--check' in sys.argv[1:]:
        stale = sorted(k for k in {*files, *old} if files.get(k) != old.get(k))
        if stale: sys.exit(f"not in step with nbs/index.ipynb: {', '.join(stale)}. Run `python tools/readme.py`.")
        return
    for k in set(old) - set(files): Path(k).unlink()
    for k, v in files.items():
        Path(k).parent.mkdir(exist_ok=True)
        tmp = Path(k + '.tmp')
        tmp.write_bytes(v)
        os.replace(tmp, k)
    print('wrote', ', '.join(files))

if __name__ == '__main__': main()
