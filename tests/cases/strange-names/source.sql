SET sql_mode = '';
CREATE DATABASE `strange_names ``. 'ü雪`;
USE `strange_names ``. 'ü雪`;
CREATE TABLE `sel``ect.1` (`order` INT, `desc"ription` VARCHAR(20), `a.``b\\` TEXT, PRIMARY KEY (`order`));
CREATE TABLE `sel``ect.2` LIKE `sel``ect.1`;
CREATE TABLE `табл{0}ица %d` (`key``1` INT, `%s` INT, `'` INT, PRIMARY KEY (`key``1`, `%s`));
CREATE TABLE `no key;--` (`a``.b` INT);
INSERT INTO `sel``ect.1` VALUES (1, 'one', '1'), (2, 'two', '2');
INSERT INTO `sel``ect.2` VALUES (20, 'twenty', '20'), (21, 'gone', '21');
INSERT INTO `табл{0}ица %d` VALUES (1, 1, 1), (2, 2, 2);
INSERT INTO `no key;--` VALUES (1), (2)
