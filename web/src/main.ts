// Where the page begins.
import {App} from './app.js';
import {placeIcons} from './dom.js';
import {startTheme} from './theme.js';

placeIcons();
startTheme();
new App().start();
