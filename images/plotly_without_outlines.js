// A world without countries, for maps that show none: plotly fetches one for a choropleth whatever it draws.
{
  const collection = {type: 'GeometryCollection', geometries: []};
  const topology = {type: 'Topology', arcs: [], objects: new Proxy({}, {get: () => collection})};
  Object.assign(window, {PlotlyGeoAssets: {topojson: new Proxy({}, {get: () => topology})}});
}
