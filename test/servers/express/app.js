// An Express application with Express's defaults, which says which of its routes served a request. Called with the name of
// the package, 'express' or 'express4', and the unix socket to listen on.
const [name, socket] = process.argv.slice(2);
const express = require(name);
const app = express();
const serve = (route) => (req, res) => res.set('X-Route', route).end();

app.set('env', 'test'); // does not log what it refuses
app.use('/public/', serve('public'));
app.get('/health', serve('health'));
app.get('/v1/render', serve('render'));
app.get('/v1/chat', serve('chat'));
app.use('/events', serve('events'));
app.get('/exports/:id', serve('export'));
app.use('/tree/', serve('tree'));
app.use(serve('other'));
app.listen(socket);
