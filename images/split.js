// Finds which modules of plotly's library each type of trace needs, and writes down where they stand: `make plotly-parts`.
//
// plotly.min.js is one function full of modules, which run when they are first asked for. So those that the types of
// a part alone need can be cut out, and be put back by a script of their own. Every name that a module holds counts as
// asked for, so what is cut is used by nothing that stays. A list of places is all that is kept of this.

'use strict';
const crypto = require('crypto');
const fs = require('fs');
const acorn = require('../labextension/node_modules/acorn');

// Types that go together, and the parts that they need besides. What is in none is in the first part, `core`.
const PARTS = {
  round: [[], 'scatterpolar', 'barpolar', 'scattersmith', 'sunburst', 'treemap', 'icicle', 'funnelarea', 'sankey', 'parcats'],
  other: [[], 'image', 'scatterternary', 'carpet', 'scattercarpet', 'contourcarpet', 'quiver', 'indicator', 'table',
    'calendars'],
  gl2d: [[], 'scattergl'],
  glmore: [['gl2d'], 'splom', 'parcoords'],
  polargl: [['round', 'gl2d'], 'scatterpolargl'],
  gl3d: [[], 'scatter3d', 'surface', 'isosurface', 'volume', 'mesh3d', 'cone', 'streamtube'],
  geo: [[], 'scattergeo', 'choropleth'],
  map: [['geo'], 'scattermap', 'choroplethmap', 'densitymap']
};

const bytes = fs.readFileSync(process.argv[2]);
const source = bytes.toString('latin1'); // so that places are those of bytes
const text = node => source.slice(node.start, node.end);

function each(node, visit) {
  visit(node);
  for (const [key, value] of Object.entries(node)) {
    if ((key === 'property' || key === 'key') && !node.computed && !node.shorthand) continue;
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one && typeof one.type === 'string') each(one, visit);
    }
  }
}

let body = { body: [] }; // the function with the modules is the one with the most statements
each(acorn.parse(source, { ecmaVersion: 'latest' }), node => {
  if (/Function/.test(node.type) && node.body.type === 'BlockStatement' && node.body.body.length > body.body.length) {
    body = node.body;
  }
});

const items = new Map();
const eager = [];
for (const statement of body.body) {
  if (statement.type === 'FunctionDeclaration' && !statement.async && !statement.generator) {
    items.set(statement.id.name, statement);
  } else if (statement.type === 'VariableDeclaration' && statement.declarations.every(one => one.id.type === 'Identifier')) {
    for (const one of statement.declarations) items.set(one.id.name, one);
  } else {
    eager.push(statement);
  }
}
const asked = new Map();
const namesIn = node => {
  const found = new Set();
  each(node, one => one.type === 'Identifier' && items.has(one.name) && found.add(one.name));
  return found;
};
for (const [name, node] of items) asked.set(name, namesIn(node));

const register = /(\w+)\.register\((\[(?:\w+\(\),){9,}\w+\(\)\])\)/.exec(source);
const listed = register[2].slice(1, -1).split(',').map(call => call.slice(0, -2));
const plotly = new RegExp(`[{,; ]${register[1]}=(\\w+)\\(\\)`).exec(source.slice(register.index - 200, register.index))[1];
const entry = [...items].find(([, node]) => node.start < register.index && register.index < node.end)[0];
for (const name of listed) asked.get(entry).delete(name);

const reach = starts => {
  const seen = new Set();
  const left = [...starts];
  while (left.length) {
    const name = left.pop();
    if (!seen.has(name)) {
      seen.add(name);
      left.push(...asked.get(name));
    }
  }
  return seen;
};
const typeOf = name => {
  const inner = /exports=(\w+)\(\)/.exec(text(items.get(name)));
  const own = text(items.get(inner ? inner[1] : name));
  // Some are put together of two modules: the one that they are called for has the name.
  for (const code of [own, ...[...asked.get(inner ? inner[1] : name)].map(one => text(items.get(one)))]) {
    const said = /moduleType:"(?:trace|component)",name:"(\w+)"/.exec(code);
    if (said) return said[1];
  }
  throw Error(`nameless: ${own}`);
};
const types = new Map(listed.map(name => [typeOf(name), name]));
const partOf = new Map(Object.entries(PARTS).flatMap(([part, [, ...all]]) => all.map(type => [type, part])));
for (const type of partOf.keys()) if (!types.has(type)) throw Error(`no such type: ${type}`);

const roots = eager.flatMap(statement => [...namesIn(statement)]);
const needs = { core: reach([...roots, ...[...types].filter(([type]) => !partOf.has(type)).map(([, name]) => name)]) };
for (const [part, [, ...all]] of Object.entries(PARTS)) needs[part] = reach(all.map(type => types.get(type)));
const place = new Map();
for (const name of items.keys()) {
  const parts = Object.keys(PARTS).filter(part => needs[part].has(name));
  const home = parts.find(part => parts.every(one => one === part || PARTS[one][0].includes(part)));
  if (!needs.core.has(name) && home) place.set(name, home);
}

// [name, where a function begins (-1 for other values), where its name ends, where it ends]
const cuts = Object.fromEntries(Object.keys(PARTS).map(part => [part, []]));
for (const [name, part] of place) {
  const node = items.get(name);
  if (node.type === 'FunctionDeclaration') cuts[part].push([name, node.start, node.id.end, node.end]);
  else if (node.init) cuts[part].push([name, -1, node.id.end, node.end]);
}
const said = {
  sha256: crypto.createHash('sha256').update(bytes).digest('hex'),
  plotly,
  register: [register.index + register[0].indexOf('['), register.index + register[0].length - 1],
  end: body.body.at(-1).start,
  types: Object.fromEntries([...types].map(([type, name]) => [type, [name, partOf.get(type) ?? 'core']])),
  needs: Object.fromEntries(Object.entries(PARTS).map(([part, [others]]) => [part, others])),
  cuts
};
const lines = Object.entries(said).map(([key, value]) => `${JSON.stringify(key)}:${JSON.stringify(value)}`);
console.log(`{${lines.join(',\n')}}`);
