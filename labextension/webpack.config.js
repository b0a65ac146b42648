// What is built is committed, so it can be read, and the same sources make the same bytes on every machine.
module.exports = {
  devtool: false,
  optimization: { minimize: false, moduleIds: 'named', chunkIds: 'named', mangleExports: false }
};
