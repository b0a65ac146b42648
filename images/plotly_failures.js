// Says why a figure of plotly's is not drawn, once, which stands in the console otherwise.
addEventListener('unhandledrejection', event => {
  if (document.querySelector('p.failed')) return;
  const note = document.createElement('p');
  const why = String(event.reason);
  note.className = 'failed';
  note.textContent =
    '[plotly] ' +
    (why.includes('topojson')
      ? 'The outlines of countries would come from a network, and a sandbox has none. Bring areas of your own, by ' +
        'geojson= and locations=, and leave the outlines out: figure.update_geos(visible=False).'
      : why);
  document.body.prepend(note);
});
