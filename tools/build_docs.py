"""Build the documentation site in _docs/: nbdev processes the notebooks, smalldocs renders them, polyroute.site adds the live pages' data.

`build_docs.py --live FOLDER` builds the two live pages alone, in seconds.

What smalldocs leaves undone is done on `_proc/`, the processed copy: page names without their number (nbdev's
links expect that), the sidebar, relative links, numbered `@fig-`, `@tbl-` and `@eq-` references, pages of the
modules' source, and KaTeX from the site itself."""
import ast, html, json, os, re, shutil, subprocess, sys, tempfile
from pathlib import Path
import yaml
from execnb.nbio import nb2dict
from nbdev.config import get_config
from nbdev.doclinks import nbdev_export
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from pages import processed
from polyroute.site import write_pages_data

ROOT = Path(__file__).resolve().parents[1]
LAYERS = [('Core', 0, 9), ('Systems', 10, 19), ('Data', 20, 29), ('Results', 30, 39), ('Suites', 40, 49), ('In use', 50, 79), ('Edges', 80, 99)]
NAVBAR = ['guide', 'leaderboard', 'metrics', 'systems', 'cli']    # those of them that exist, behind the live pages
LIVE = {'board': ('Live board', 'Sort, filter and compare every system on every data set, in your browser.', 'The same tables, fixed: <a href="leaderboard.html">Leaderboard</a>.'),
        'explorer': ('Item explorer', 'Read the items behind the numbers, in their own script: which system said what, and how sure it was.', 'The same texts, as files: the folder data of the repository.')}
LIVE_PAGE = """---
title: {title}
description: "{description}"
page-layout: full
toc: false
---

```{{=html}}
<link rel="stylesheet" href="assets/live/live.css">
<div id="live-{page}" class="live-page"><noscript><p>This page computes in the browser and needs JavaScript. {otherwise}</p></noscript></div>
<script type="module" src="assets/live/{page}.js"></script>
```
"""
KIND = dict(fig='Figure', tbl='Table', eq='Equation')
NUMBER = re.compile(r'^(\d+)[a-z]?_')
CDN = re.compile(r'https://cdn\.jsdelivr\.net/npm/katex@[\d.]+/dist/(?:contrib/)?')

def page_name(
    stem: str, # of a notebook: '01_metrics'
) -> str: # of its page: 'metrics'
    "Return the name of a notebook without its number."
    return NUMBER.sub('', stem)

def navigation(
    stems: list, # of the notebooks, numbers included
) -> tuple: # sidebar and navbar entries, as Quarto's options have them
    "Return the sidebar, one section a layer, and the left side of the navbar."
    numbers = {o: int(m[1]) for o in sorted(stems) if (m := NUMBER.match(o))}
    lost = [o for o in stems if o not in numbers and o != 'index']
    if lost: sys.exit(f"notebooks without a number, so without a layer: {', '.join(lost)}")
    entry = lambda o: f'{page_name(o)}.ipynb'
    sections = [{'section': name, 'contents': pages} for name, lo, hi in LAYERS if (pages := [entry(o) for o, n in numbers.items() if lo <= n <= hi])]
    pages = [entry(o) for name in NAVBAR for o in numbers if page_name(o) == name]
    live = [f'{o}.qmd' for o in LIVE]
    return ['index.ipynb', {'section': 'Live', 'contents': live}, *sections], [{'href': 'index.ipynb', 'text': 'Home'}, *live, *pages]

def source(
    cell: dict, # of a notebook
) -> str: # its text
    "Return the source of a cell, which a file may hold as a list of lines."
    return ''.join(cell['source'])

def labels(
    nbs: dict, # page -> notebook, in reading order
) -> dict: # label -> (page, 'Figure 1')
    "Number the labels of all pages."
    refs, n = {}, dict.fromkeys(KIND, 0)
    for page, nb in nbs.items():
        for c in nb['cells']:
            pattern = r'^#\|\s*label:\s*((fig|tbl|eq)-[\w-]+)' if c['cell_type'] == 'code' else r'\{#((fig|tbl|eq)-[\w-]+)'
            for label, kind in re.findall(pattern, source(c), re.M):
                if label in refs: sys.exit(f'{page}: the label {label} is on {refs[label][0]} too')
                n[kind] += 1
                refs[label] = (page, f'{KIND[kind]} {n[kind]}')
    return refs

def line_of(
    path: Path, # a module
    name: str, # 'wilson' or 'Dataset.select'
) -> int: # from 1; 1 where the name is made in another way
    "Return the line on which a function, class or method is defined."
    body = ast.parse(path.read_text(encoding='utf-8')).body
    for part in name.split('.'):
        node = next((o for o in body if getattr(o, 'name', None) == part), None)
        if node is None: return 1
        body = getattr(node, 'body', [])
    return node.lineno

def local_links(
    text: str, # Markdown
    cfg, # nbdev's configuration
) -> str: # the same, with links that stay on the site
    "Make nbdev's links to pages and to the modules' source relative."
    text = text.replace(cfg.doc_host.rstrip('/') + cfg.doc_baseurl.rstrip('/') + '/', './')
    code = re.escape(f'{cfg.git_url}/blob/{cfg.branch}/{cfg.lib_path.name}/') + r'([\w/]+)\.py#L\w+\)\{[^}]*\}(\s+#+ ([\w.]+))'
    return re.sub(code, lambda m: f"./source/{m[1]}.html#L-{line_of(cfg.lib_path/f'{m[1]}.py', m[3])}){{.source-link}}{m[2]}", text)

def fix_markdown(
    text: str, # Markdown of a cell
    page: str, # where it stands
    refs: dict, # label -> (page, 'Figure 1')
    cfg, # nbdev's configuration
) -> str: # Markdown that smalldocs renders right
    "Resolve references and links."
    def ref(m):
        if m[1] not in refs: sys.exit(f'{page}: no label for @{m[1]}')
        there, name = refs[m[1]]
        return f"[{name}]({'' if there == page else f'{there}.html'}#{m[1]})"
    def equation(m): return f'[]{{#{m[2]}}}\n\n$${m[1].rstrip()} \\tag{{{refs[m[2]][1].split()[1]}}}\n$$'
    text = re.sub(r'\$\$(.+?)\$\$\s*\{#(eq-[\w-]+)\}', equation, text, flags=re.S)
    text = re.sub(r'(?<![\w`\[])@((?:fig|tbl|eq)-[\w-]*\w)', ref, text)
    text = re.sub(r'\]\((?:\./)?(?:\d+[a-z]?_)?(\w+)\.ipynb', r'](./\1.ipynb', text)
    return local_links(text, cfg)

def fix(
    nb: dict, # a processed notebook, changed in place
    page: str, # its name
    refs: dict, # label -> (page, 'Figure 1')
    cfg, # nbdev's configuration
):
    "Put numbers into captions and make references and links work."
    for c in nb['cells']:
        s = source(c)
        if c['cell_type'] == 'raw': c['source'] = re.sub(r'^output-file:.*\n', '', s, flags=re.M)
        elif c['cell_type'] == 'markdown': c['source'] = fix_markdown(s, page, refs, cfg)
        else:
            m = re.search(r'^#\|\s*label:\s*(\S+)', s, re.M)
            if m and m[1] in refs:
                name = refs[m[1]][1]
                caption = lambda k: k[1] + json.dumps(f'{name}: {k[3]}', ensure_ascii=False)
                c['source'] = re.sub(r'^(#\|\s*(?:fig|tbl)-cap:\s*)(["\']?)(.*?)\2$', caption, s, count=1, flags=re.M)
            for o in c['outputs']:
                data = o.get('data', {})
                if 'text/markdown' in data:    # smalldocs resolves notebook links in Markdown cells only
                    data['text/markdown'] = re.sub(r'\]\((?:\./)?(?:\d+[a-z]?_)?(\w+)\.ipynb', r'](\1.html', local_links(''.join(data['text/markdown']), cfg))

def source_pages(
    cache: Path, # the processed notebooks, beside which the pages go: smalldocs looks whether a link's file is there
    lib: Path, # the package
):
    "Write a page of each module's source, with an anchor for every line."
    css = '\n'.join([HtmlFormatter(style='default').get_style_defs('.highlight'), '@media (prefers-color-scheme: dark) {',
                     HtmlFormatter(style='github-dark').get_style_defs('.highlight'), '}'])
    extra = ('html{color-scheme:light dark}body{margin:1rem;font:14px/1.45 ui-monospace,monospace;background:#fff}pre{margin:0;overflow-x:auto;line-height:1.45}'
             '.linenos a{color:inherit;opacity:.5;text-decoration:none;padding-right:1rem}.highlight{background:none!important}td.linenos pre{background:none!important}'
             'h1{font:600 1.1rem system-ui,sans-serif}h1 a{color:inherit}@media (prefers-color-scheme: dark){body{background:#0d1117;color:#e6edf3}}')
    form = HtmlFormatter(linenos='table', lineanchors='L', anchorlinenos=True)
    for p in sorted(lib.rglob('*.py')):
        if p.name == '_modidx.py': continue
        rel = p.relative_to(lib).with_suffix('.html')
        out, up = cache/'source'/rel, '../'*len(rel.parts)
        out.parent.mkdir(parents=True, exist_ok=True)
        home = f'{up}{rel.stem}.html' if (cache/f'{rel.stem}.ipynb').exists() else f'{up}index.html'
        title = html.escape(f'{lib.name}/{p.relative_to(lib).as_posix()}')
        code = highlight(p.read_text(encoding='utf-8'), PythonLexer(), form)
        out.write_text(f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
                       f'<title>{title}</title><style>{css}{extra}</style><h1><a href="{home}">{title}</a></h1>{code}</html>', encoding='utf-8')

def live_pages(
    cache: Path, # the processed notebooks, beside which the pages go
):
    "Write the two live pages; their scripts fill them."
    for page, (title, description, otherwise) in LIVE.items():
        (cache/f'{page}.qmd').write_text(LIVE_PAGE.format(page=page, title=title, description=description, otherwise=otherwise), encoding='utf-8')

def options(
    cache: Path, # the processed notebooks, beside which the file goes
    nbs: Path, # the notebooks
    sidebar: list, # as Quarto's options have it
    left: list, # of the navbar
):
    "Write the options of the site, with its navigation and its icon."
    opts = yaml.safe_load((nbs/'_quarto.yml').read_text(encoding='utf-8'))
    opts['website'] |= dict(favicon='assets/favicon.svg', sidebar=dict(style='floating', contents=sidebar))
    opts['website']['navbar']['left'] = left
    (cache/'_quarto.yml').write_text(yaml.safe_dump(opts, sort_keys=False, allow_unicode=True), encoding='utf-8')
    (cache/'assets').mkdir()
    shutil.copy(nbs/'assets'/'favicon.svg', cache/'assets')
    shutil.copy(nbs/'styles.css', cache)

def process(
    cfg, # nbdev's configuration
) -> Path: # the folder of processed notebooks, ready to render
    "Process the notebooks, name them after their pages, and mend them."
    cache = ROOT/'_proc'
    shutil.rmtree(cache, ignore_errors=True)
    cache.mkdir()
    files = sorted((p for p in cfg.nbs_path.glob('[!._]*.ipynb')), key=lambda p: (p.stem != 'index', p.stem))
    sidebar, left = navigation([p.stem for p in files])
    nbs = {page_name(p.stem): nb2dict(processed(p)) for p in files}
    refs = labels(nbs)
    for page, nb in nbs.items():
        fix(nb, page, refs, cfg)
        (cache/f'{page}.ipynb').write_text(json.dumps(nb), encoding='utf-8')
    live_pages(cache)
    options(cache, cfg.nbs_path, sidebar, left)
    return cache

FIGURE = re.compile(r'(<img (?![^>]*\balt=)[^>]*)>(.{0,80}?<figcaption>)(.*?)(</figcaption>)', re.S)
MENDED = [('<th></th>', '<td></td>'), ('<nav class="navbar ', '<nav aria-label="Site" class="navbar '), ('<nav class="quarto-secondary-nav"', '<nav aria-label="This page" class="quarto-secondary-nav"'),
          ('<nav id="quarto-sidebar"', '<nav aria-label="All pages" id="quarto-sidebar"'), ('<nav class="page-navigation"', '<nav aria-label="Neighbouring pages" class="page-navigation"'),
          ('role="navigation" aria-expanded', 'role="button" aria-expanded')]

def mended(
    text: str, # a page
    up: str, # from its folder to the site's: '' or '../'
) -> str:
    "Return a page with what a screen reader and a keyboard need: texts for figures, names for landmarks, a way into what scrolls."
    def figure(m): return f'{m[1]} alt="{html.escape(html.unescape(re.sub("<[^>]+>", "", m[3])))}">{m[2]}{m[3]}{m[4]}'
    text = FIGURE.sub(figure, text)
    text = re.sub(r'<img (?![^>]*\balt=)', '<img alt="Figure; its numbers are in the text and tables around it." ', text)
    for old, new in MENDED: text = text.replace(old, new)
    return text.replace('</head>', f'<link rel="stylesheet" href="{up}assets/site.css"><script type="module" src="{up}assets/site.js"></script></head>', 1)

def own_files(
    site: Path, # the rendered site, changed in place
):
    "Make every page take its scripts, styles and fonts from the site itself."
    for p in site.rglob('*.html'):
        up = '../'*(len(p.relative_to(site).parts) - 1)
        text = CDN.sub(f'{up}assets/katex/', p.read_text(encoding='utf-8'))
        p.write_text(text if 'source' in p.relative_to(site).parts else mended(text, up), encoding='utf-8')
    for p in (site/'site_libs').rglob('*.css'):    # the themes ask a font service
        t = p.read_text(encoding='utf-8')
        if 'fonts.googleapis' in t: p.write_text(re.sub(r'@import url\((["\']?)https://fonts\.googleapis[^)]*\1\);?', '', t), encoding='utf-8')

def render(
    cache: Path, # the pages' sources
    cfg, # nbdev's configuration
    out: Path, # the site's folder, replaced
):
    "Render the pages, add what they load, and put the site in its place."
    subprocess.run([str(Path(sys.executable).parent/'smalldocs'), 'render', '--strict', str(cache)], check=True)
    site = cache/cfg.doc_path.name
    shutil.copytree(cfg.nbs_path/'assets', site/'assets', dirs_exist_ok=True)
    if (cache/'source').is_dir(): shutil.copytree(cache/'source', site/'source', dirs_exist_ok=True)
    own_files(site)
    write_pages_data(site/'live')
    (site/'.nojekyll').write_text('')    # GitHub Pages serves the files as they are
    shutil.rmtree(out, ignore_errors=True)
    shutil.move(site, out)

def live_only(
    out: Path, # the site's folder
):
    "Build the two live pages without the notebooks."
    cfg = get_config()
    with tempfile.TemporaryDirectory() as d:
        cache = Path(d)
        live_pages(cache)
        pages = [f'{o}.qmd' for o in LIVE]
        (cache/'index.qmd').write_text('---\ntitle: PolyRoute\n---\n\n[Live board](board.qmd) · [Item explorer](explorer.qmd)\n', encoding='utf-8')
        options(cache, cfg.nbs_path, ['index.qmd', *pages], pages)
        render(cache, cfg, out)

def main():
    args = sys.argv[1:]
    if args[:1] == ['--live']: args = ['--live', str(Path(args[1]).resolve())]
    os.chdir(ROOT)
    if args: return live_only(Path(args[1]))
    cfg = get_config()
    if not (cfg.nbs_path/'assets'/'katex'/'katex.min.css').exists(): sys.exit('nbs/assets/katex is missing: run `make docs`, which fetches it.')
    nbdev_export()
    cache = process(cfg)
    source_pages(cache, cfg.lib_path)
    render(cache, cfg, cfg.doc_path)
    shutil.rmtree(cache)

if __name__ == '__main__': main()
