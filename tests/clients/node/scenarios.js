'use strict';

// Runs the scenario that the first argument names with the options in the
// second, and prints a line of JSON for each step and one for the result.

const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

// Tells the test that a step has come about.
const step = (step) => print({ step });

const run = (scenarios) => {
  const [name, options] = process.argv.slice(2);
  scenarios[name](JSON.parse(options)).then((result) => print({ result }), (error) => {
    console.error(error);
    process.exitCode = 1;
    // Connections that are kept do not keep the process.
    process.exit();
  });
};

module.exports = { run, step };
